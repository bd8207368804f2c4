"""Seeded, deterministic simulation of the whole service over its real core."""
