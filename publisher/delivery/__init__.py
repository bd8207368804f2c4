"""Delivery: a put that waits until subscribers have acknowledged."""
