"""QoS 0: messages in memory only."""
