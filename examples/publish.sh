#!/usr/bin/env bash
# Publish the lines of a file, each once: after a kill, run the same command again, and it resumes.
#
#   examples/publish.sh orders orders.txt
set -euo pipefail
reliable-pubsub put "$1" - --id "import-$1" <"$2"
