#!/bin/sh
# Our subscriber under `reliable-pubsub conformance`: it gets until it is stopped.
# Arguments go to the subscriber: `-- examples/conformance_subscriber.sh --ack-timeout 0.5`
set -e
steps="$CONFORMANCE_STATE_DIR/steps.yaml"
cat > "$steps" <<END
steps:
  - {action: subscribe, topic: $CONFORMANCE_TOPIC}
  - {action: get, topic: $CONFORMANCE_TOPIC, number_of_times: 1000000000, batch: 10}
END
exec "${PYTHON:-python3}" -m reliable_pubsub subscriber -f "$steps" -i "$CONFORMANCE_ID" --quiet \
    --endpoint "$CONFORMANCE_ENDPOINT" --state-dir "$CONFORMANCE_STATE_DIR" \
    --output "$CONFORMANCE_OUTPUT" "$@"
