"""Operators: actions from outside, and their history."""
