"""Decisions: values in, values out. No socket, clock, file, thread or chance."""
