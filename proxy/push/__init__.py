"""Push: batches go to subscribers and relays without a request."""
