"""Groups: members take messages that the proxy grants, and settle each."""
