"""QoS 1 and 0: puts without a stored numbering, and whether they have a listener."""
