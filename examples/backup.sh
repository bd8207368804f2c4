#!/usr/bin/env bash
# Back up a proxy while it runs, lose its disk, and start from the backup.
#
# It prints:
#
#     put 1 on orders
#     put 1 on orders
#     after the loss: lamp
set -euo pipefail
cd "$(mktemp -d)"
reliable-pubsub proxy --data-dir data &>proxy.log &
reliable-pubsub put orders lamp
reliable-pubsub backup monday --data-dir data >/dev/null
reliable-pubsub put orders piano # after the backup: it will be gone

kill -9 $!
wait $! 2>/dev/null || true
rm -r data
reliable-pubsub restore monday data &>restore.log
reliable-pubsub proxy --data-dir data &>proxy.log &
trap 'kill $!; wait' EXIT
echo "after the loss: $(reliable-pubsub get orders)"
