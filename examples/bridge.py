"""A bridge: it brings to one broker the topics of another one, as far as they are subscribed to.

python examples/bridge.py --far-endpoint tcp://127.0.0.1:6556       # the other broker's subscribers

Links between sites cost money, so nothing crosses this one that has no subscription at its end. If
the bridge dies between a put and its acknowledgement, it puts the message again: the header
`origin` names topic and offset at the far broker, and is the same then.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import click

from reliable_pubsub import Message, Pattern, Publisher, Subscriber
from reliable_pubsub.common.core.settings import PUBLISHER_ENDPOINT

Topics = str | Pattern
LOOK_S = 1.0  # between two looks at who wants what
BATCH = 100


def follow(far: Subscriber, followed: set[Topics], wanted: set[Topics]) -> None:
    """Subscribe at the far broker to exactly the topics wanted now."""
    for topics in followed - wanted:
        far.unsubscribe(topics)
        click.echo(f"no longer: {topics}")
    for topics in wanted - followed:
        if isinstance(topics, str):
            far.subscribe(topics)
        else:
            far.subscribe(match=topics)
        click.echo(f"bridged: {topics}")


def carry(near: Publisher, messages: Iterable[Message]) -> None:
    """Put messages from the far broker at the near one."""
    for message in messages:
        origin = {"origin": f"{message.topic} {message.offset}"}
        headers = {**(message.headers or {}), **origin}
        near.put(message.topic, message.payload, key=message.key, headers=headers)


@click.command()
@click.option("--far-endpoint", required=True, help="Subscriber endpoint of the far broker.")
@click.option("--near-endpoint", default=PUBLISHER_ENDPOINT, help="Publisher endpoint of ours.")
@click.option("--state-dir", default="bridge-state", show_default=True)
def main(far_endpoint: str, near_endpoint: str, state_dir: str) -> None:
    """Run the bridge until interrupted."""
    with (
        Publisher("bridge", endpoint=near_endpoint, state_dir=state_dir) as near,
        Subscriber("bridge", endpoint=far_endpoint, state_dir=state_dir) as far,
    ):
        followed: set[Topics] = set()
        while True:
            wanted = {change.topics for change in near.interests(timeout_s=0)}
            follow(far, followed, wanted)
            followed, look_at_s = wanted, time.monotonic() + LOOK_S
            while time.monotonic() < look_at_s:
                found = [far.get(topics, max_messages=BATCH) for topics in followed]
                for messages in found:
                    carry(near, messages)
                if not any(found):
                    time.sleep(LOOK_S / 10)


if __name__ == "__main__":
    main()
