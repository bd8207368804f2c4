"""Run the same program several times, without an id for each: start it in as many terminals.

python examples/replica.py
"""

from __future__ import annotations

from collections.abc import Callable

from reliable_pubsub import Earliest, Subscriber


def share(handle: Callable[[bytes], object], timeout_s: float | None = None) -> None:
    """Handle a share of the orders until there was none for `timeout_s`; None: until Ctrl-C."""
    with Subscriber.unique("worker") as subscriber:
        subscriber.subscribe("orders", group="shipping", start=Earliest)
        for order in subscriber.messages("orders", timeout_s=timeout_s):
            handle(order.payload)


if __name__ == "__main__":
    share(print)
