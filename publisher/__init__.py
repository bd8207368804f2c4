"""The publisher: an outbox that numbers messages, a client that puts them, a step runner."""
