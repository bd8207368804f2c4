"""Tests of the relay: matchers, interest, its exchange."""
