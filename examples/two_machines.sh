#!/usr/bin/env bash
# Encrypt traffic, and admit only known keys. Here one machine plays both.
#
# It prints:
#
#     put 1 on readings
#     21.5
#     without a key: refused
set -euo pipefail
cd "$(mktemp -d)"
reliable-pubsub keys new proxy >/dev/null    # on the proxy's machine
reliable-pubsub keys new sensor-1 >/dev/null # on the sensor's machine
mkdir clients                                # exchange the two .key files, never .key_secret
cp keys/sensor-1.key clients/
echo 'sensor-1: {put: [readings], history: [readings], ids: ["*"]}' >clients/rights.yaml

reliable-pubsub proxy --secret-key keys/proxy.key_secret --clients clients &>proxy.log &
trap 'kill $!; wait' EXIT
mine=(--secret-key keys/sensor-1.key_secret --server-key keys/proxy.key)
reliable-pubsub put readings 21.5 "${mine[@]}"
reliable-pubsub get readings "${mine[@]}"
reliable-pubsub put readings 99 --ack-timeout 0.5 --send-retries 1 2>/dev/null ||
  echo "without a key: refused"
