#!/usr/bin/env bash
# Show the dead letters of a topic with their reasons, and put each of them again, once.
#
#   examples/requeue.sh jobs
set -euo pipefail
reliable-pubsub get "$1.dead" --json
reliable-pubsub dead put-again "$1"
