"""Brokers for the tests of a program that uses this package: docs/how-to/testing.md."""

from reliable_pubsub.lab.testing.memory_broker import MemoryBroker
from reliable_pubsub.lab.testing.process_broker import ProcessBroker

__all__ = ["MemoryBroker", "ProcessBroker"]
