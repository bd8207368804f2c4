"""Tests of the console that need no process."""
