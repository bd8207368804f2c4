#!/usr/bin/env bash
# Read the metrics and the health of a proxy, as Prometheus and a load balancer do.
#
# It prints:
#
#     put 1 on orders
#     reliable_pubsub_messages_stored_total 1.0
#     ready: 200
set -euo pipefail
cd "$(mktemp -d)"
at=${RELIABLE_PUBSUB_METRICS_ENDPOINT:-127.0.0.1:9464}
reliable-pubsub proxy --metrics-endpoint "$at" &>proxy.log &
trap 'kill $!; wait' EXIT
reliable-pubsub put orders lamp
curl -s "http://$at/metrics" | grep '^reliable_pubsub_messages_stored_total'
echo "ready: $(curl -s -o /dev/null -w '%{http_code}' "http://$at/readyz")"
