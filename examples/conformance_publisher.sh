#!/bin/sh
# Our publisher under `reliable-pubsub conformance`: a step file that puts the lines of its input.
# Its journal is its output. Arguments go to the publisher: `-- examples/conformance_publisher.sh --ack-timeout 0.5`
set -e
steps="$CONFORMANCE_STATE_DIR/steps.yaml"
echo "steps: [{topic: $CONFORMANCE_TOPIC, message_file: $CONFORMANCE_INPUT}]" > "$steps"
exec "${PYTHON:-python3}" -m reliable_pubsub publisher -f "$steps" -i "$CONFORMANCE_ID" --quiet \
    --endpoint "$CONFORMANCE_ENDPOINT" --state-dir "$CONFORMANCE_STATE_DIR" \
    --journal "$CONFORMANCE_OUTPUT" "$@"
