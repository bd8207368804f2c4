"""What all rooms share: names, limits, messages, wire, errors, retry, settings, steps."""
