"""The calls of a subscriber, which know all of its features."""
