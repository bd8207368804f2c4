"""The clients for asyncio: the same calls, awaited.

from reliable_pubsub import aio

async with aio.Publisher("p") as publisher:
    await publisher.put("t", b"hello")
"""

from reliable_pubsub.publisher.aio import Publisher, Transaction
from reliable_pubsub.publisher.streams.aio_stream import Stream, Ticket
from reliable_pubsub.subscriber.aio import Subscriber

__all__ = ["Publisher", "Stream", "Subscriber", "Ticket", "Transaction"]
