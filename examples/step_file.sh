#!/usr/bin/env bash
# Run a publisher from a step file on stdin, and keep each message once in a file.
#
# It prints:
#
#     event_1
#     event_2
#     event_3
set -euo pipefail
cd "$(mktemp -d)"
reliable-pubsub subscribe news --id reader >/dev/null
reliable-pubsub publisher -f - -i reporter <<STEPS >/dev/null
steps:
  - topic: news
    message: event
    number_of_times: 3
STEPS
reliable-pubsub get news --id reader --output news.jsonl
sed 's/.*"payload": "\([^"]*\)".*/\1/' news.jsonl
