"""Patterns: the topics of a condition, as subscriptions of one subscriber."""
