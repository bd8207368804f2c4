"""The tests. `core`, `wire` and `store` need no socket and no sleep."""
