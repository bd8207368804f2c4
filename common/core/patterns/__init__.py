"""Patterns: selections of topics, and of messages by their headers."""
