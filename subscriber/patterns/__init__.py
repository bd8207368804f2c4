"""Patterns: one subscription for all topics that match."""
