#!/usr/bin/env bash
# Filter a topic with grep, and put the result on another topic.
#
# It prints:
#
#     put 3 on orders
#     put 2 on lamps
#     red lamp
#     blue lamp
set -euo pipefail
printf '%s\n' 'red lamp' 'piano' 'blue lamp' | reliable-pubsub put orders
reliable-pubsub get orders | grep lamp | reliable-pubsub put lamps
reliable-pubsub get lamps
