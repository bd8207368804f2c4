"""Transactions: puts on several topics, all of them or none."""
