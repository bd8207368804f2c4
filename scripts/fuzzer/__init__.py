"""Hostile peers at the sockets of a real proxy, with an honest pair beside them."""
