"""Tests that touch a file in a temporary directory, and no socket."""
