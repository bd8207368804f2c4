"""Interests: a feed of what is subscribed to."""
