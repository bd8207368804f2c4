"""Push: messages arrive without a request."""
