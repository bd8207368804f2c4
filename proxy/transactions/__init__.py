"""Transactions: batches that are stored together or not at all."""
