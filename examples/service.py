"""A web service that accepts orders and handles each once. Needs `fastapi` and `uvicorn`.

    reliable-pubsub proxy                    # in one terminal
    uvicorn examples.service:app --workers 2 # in another
    curl -X POST localhost:8000/orders/7     # stored when it answers
    curl localhost:8000/health

An order that was answered with 201 is handled once, across `kill -9` of a worker and the proxy.
Each worker has clients of its own (`unique`, docs/how-to/replicas.md). The workers share the
orders as members of a group, and write each under its message id.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from fastapi import FastAPI, HTTPException, Request, Response

from reliable_pubsub import (
    Earliest,
    FencedError,
    InDoubtError,
    LogChangedError,
    PubSubError,
    RetryPolicy,
    aio,
)

TOPIC = "orders"
FOREVER = RetryPolicy(retries_max="forever")


class Orders:
    """The orders that were handled: the program's own data."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS handled (message TEXT PRIMARY KEY, number TEXT)"
        )

    def handle(self, message_id: str, number: str) -> None:
        """Handle an order; one that comes again has no effect."""
        self._database.execute("INSERT OR IGNORE INTO handled VALUES (?, ?)", (message_id, number))

    def numbers(self) -> list[str]:
        """Every handled order, in the order in which they came."""
        rows = self._database.execute("SELECT number FROM handled ORDER BY rowid")
        return [number for (number,) in rows]


async def handle_orders(subscriber: aio.Subscriber, orders: Orders) -> None:
    """Handle each order once, until the service stops; wait while the proxy is unreachable."""
    await subscriber.subscribe(TOPIC, group="service", start=Earliest, lease_s=10)
    async for message in subscriber.messages(TOPIC):
        orders.handle(message.message_id, message.payload.decode())


def end_worker(*_: object) -> None:
    """End this worker, so that a new one with new clients replaces it."""
    os.kill(os.getpid(), signal.SIGTERM)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the clients for as long as the service runs."""
    directory = Path(os.environ.get("SERVICE_DIR", "service-data"))
    directory.mkdir(exist_ok=True)
    state_dir = directory / "state"
    async with (
        aio.Publisher.unique("service", state_dir=state_dir) as publisher,
        aio.Subscriber.unique("service", retry=FOREVER) as subscriber,
    ):
        app.state.publisher = publisher
        app.state.orders = Orders(directory / "orders.sqlite")
        app.state.handling = asyncio.create_task(handle_orders(subscriber, app.state.orders))
        app.state.handling.add_done_callback(end_worker)
        yield
        app.state.handling.remove_done_callback(end_worker)
        subscriber.stop()
        with suppress(InDoubtError):  # stopped before it could subscribe
            await app.state.handling


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{number}", status_code=201)
async def put_order(number: str, request: Request) -> dict[str, str]:
    """Answer when the order is stored."""
    try:
        receipt = await request.app.state.publisher.put(TOPIC, number.encode(), timeout_s=5)
    except (FencedError, LogChangedError) as error:  # it would answer 503 until it is restarted
        end_worker()
        raise HTTPException(503, str(error)) from error
    except PubSubError as error:
        raise HTTPException(503, str(error)) from error
    return {"message": receipt.message_id}


@app.get("/orders")
async def orders(request: Request) -> list[str]:
    """The orders that were handled."""
    handled: list[str] = request.app.state.orders.numbers()
    return handled


@app.get("/health")
async def health(request: Request, response: Response) -> dict[str, bool]:
    """Whether the proxy answers, and the orders are being handled."""
    try:
        await request.app.state.publisher.interest(TOPIC, timeout_s=1)
        proxy = True
    except PubSubError:
        proxy = False
    handling = not request.app.state.handling.done()
    response.status_code = 200 if proxy and handling else 503
    return {"proxy": proxy, "handling": handling}
