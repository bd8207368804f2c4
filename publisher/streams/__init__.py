"""Streams: puts that return without waiting, and are sent in batches."""
