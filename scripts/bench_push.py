"""The part `push` of the benchmark: bytes of a fan-out, interest under zapping."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
import zmq

from reliable_pubsub.common.core.batch import Batch, crc32
from reliable_pubsub.common.core.message_base import BatchHeader
from reliable_pubsub.common.core.patterns.matching import Pattern, Strategy
from reliable_pubsub.common.core.wire import encode_batch
from reliable_pubsub.lab.rig.child_process import ANY_PORT, ChildProcess
from reliable_pubsub.lab.rig.link import LinkTo
from reliable_pubsub.relay.above import NodeAbove
from reliable_pubsub.relay.core.push import Pushed, encode_push
from reliable_pubsub.relay.topology import ask_node

from .measuring import PAYLOAD, Row, folder, proxy

LEAVES = 100
FAN_OUT_MESSAGES = 100
VIEWERS, CHANNELS, ZAPS = 20, 50, 100  # each viewer zaps so often
ZAPS_PER_S = 2_000  # of all viewers together
STRATEGIES: tuple[Strategy, ...] = ("none", "dedup", "subsume", "all")


def push_rows() -> list[Row]:
    return [fan_out(), *zapping()]


# A fan-out, in bytes on the link above.


@contextmanager
def relay(name: str, *options: str) -> Iterator[dict[str, str]]:
    """A relay process; its endpoints, `requests` and `push`."""
    command = [sys.executable, "-m", "reliable_pubsub", "relay", "-i", name, *options]
    command += ["--endpoint", ANY_PORT, "--push-endpoint", ANY_PORT]
    with folder() as directory, ChildProcess(command, directory / "log") as process:
        yield process.endpoints()


def fan_out() -> Row:
    """100 subscribers directly, and below two relays."""
    context: Any = zmq.Context()
    source = context.socket(zmq.XPUB)
    endpoint = f"tcp://127.0.0.1:{source.bind_to_random_port('tcp://127.0.0.1')}"
    direct = fan_out_bytes(context, source, LinkTo(endpoint), None)
    link = LinkTo(endpoint)
    above = ("--publisher", link.endpoint)
    with relay("left", *above) as left, relay("right", *above) as right:
        tree = fan_out_bytes(context, source, link, [left["push"], right["push"]])
    context.destroy(linger=0)
    return Row(
        work=f"{LEAVES} subscribers below two relays: on the link above, per message",
        unit="bytes",
        ours=tree,
        bare=direct,
        against=f"{LEAVES} subscribers without relays",
        ratio=tree / direct,
        at_most=1 / 25,
    )


def fan_out_bytes(context: Any, source: Any, link: LinkTo, below: list[str] | None) -> float:
    """Bytes for one message that all subscribers get."""
    endpoints = below or [link.endpoint]
    leaves = []
    for number in range(LEAVES):
        leaf = context.socket(zmq.SUB)
        leaf.setsockopt(zmq.SUBSCRIBE, b"bench\0")
        leaf.connect(endpoints[number % len(endpoints)])
        leaves.append(leaf)
    body = encode_batch(Batch([PAYLOAD]))

    def send(base: int) -> None:
        header = BatchHeader(base, 1, "bench", base + 1, base + 1, crc32(body), len(body))
        source.send_multipart(encode_push("bench", Pushed(boot="b", log="l", batch=header), body))

    for leaf in leaves:  # until each has heard one, interest has not arrived everywhere
        while not leaf.poll(50):
            send(0)
    for leaf in leaves:
        while leaf.poll(200):
            leaf.recv_multipart()
    before = link.down_bytes
    for base in range(FAN_OUT_MESSAGES):
        send(base)
    for leaf in leaves:
        for _ in range(FAN_OUT_MESSAGES):
            leaf.recv_multipart()
    counted = link.down_bytes - before
    for leaf in leaves:
        leaf.close(linger=0)
    link.close()
    return counted / FAN_OUT_MESSAGES


# Interest while many viewers change channels.


def zaps() -> Iterator[tuple[int, str]]:
    """Who changes to which channel, each time the same, and as fast as it is said."""
    chance = random.Random(7)
    begin_s = time.monotonic()
    for number in range(ZAPS * VIEWERS):
        time.sleep(max(begin_s + number / ZAPS_PER_S - time.monotonic(), 0.0))
        yield number % VIEWERS, f"channel-{chance.randrange(CHANNELS):02}"


def zapping() -> list[Row]:
    """Messages about subscriptions on each of two tiers, with each strategy and with plain XSUB."""
    plain = zapping_plain()
    rows = []
    for strategy in STRATEGIES:
        tiers = zapping_ours(strategy)
        for tier in (0, 1):
            rows.append(
                Row(
                    work=f"{ZAPS_PER_S:,} zaps/s, strategy {strategy}: tier {tier + 1}",
                    unit="messages",
                    ours=tiers[tier],
                    bare=plain[tier],
                    against="plain XPUB/XSUB devices",
                    ratio=tiers[tier] / plain[tier],
                    at_most=0.1 if strategy == "subsume" else None,
                )
            )
    return rows


def device(context: Any, above: str, counts: list[int]) -> str:
    """A plain device in a thread, which counts the subscriptions that it passes up."""
    front, back = context.socket(zmq.XPUB), context.socket(zmq.XSUB)
    for one in (front, back):
        one.setsockopt(zmq.SNDHWM, 0)
        one.setsockopt(zmq.RCVHWM, 0)
    endpoint = f"tcp://127.0.0.1:{front.bind_to_random_port('tcp://127.0.0.1')}"
    back.connect(above)
    tier = len(counts)
    counts.append(0)

    def run() -> None:
        try:
            while True:
                back.send(front.recv())
                counts[tier] += 1
        except zmq.ContextTerminated:
            front.close(linger=0)
            back.close(linger=0)

    threading.Thread(target=run, daemon=True).start()
    return endpoint


def zapping_plain() -> list[int]:
    """Subscriptions that pass two plain devices, the lower one first."""
    context: Any = zmq.Context()
    top = context.socket(zmq.XPUB)
    top.setsockopt(zmq.RCVHWM, 0)
    counts: list[int] = []
    upper = device(context, f"tcp://127.0.0.1:{top.bind_to_random_port('tcp://127.0.0.1')}", counts)
    lower = device(context, upper, counts)
    viewers: list[Any] = []
    watched: dict[int, str] = {}
    for _ in range(VIEWERS):
        viewer = context.socket(zmq.SUB)
        viewer.setsockopt(zmq.SNDHWM, 0)
        viewer.connect(lower)
        viewers.append(viewer)
    for number, channel in zaps():
        viewers[number].setsockopt(zmq.SUBSCRIBE, channel.encode())
        if number in watched:
            viewers[number].setsockopt(zmq.UNSUBSCRIBE, watched[number].encode())
        watched[number] = channel
    while True:  # until nothing moves any more
        before = list(counts)
        time.sleep(0.5)
        if before == counts:
            break
    for one in (*viewers, top):
        one.close(linger=0)
    context.term()
    return [counts[0], counts[1]]


def zapping_ours(strategy: Strategy) -> list[int]:
    """Messages about interest that two relays say above, the lower one first."""
    context: Any = zmq.Context()
    options = ("--strategy", strategy)
    with (
        proxy() as top,
        relay("upper", "--upstream", top.subscribers, *options) as upper,
        relay("lower", "--upstream", upper["requests"], *options) as lower,
    ):
        viewers = [NodeAbove(context, lower["requests"], f"viewer-{n}") for n in range(VIEWERS)]
        for number, channel in zaps():
            viewers[number].want(frozenset({Pattern("exact", channel)}), frozenset())
            viewers[number].turn(time.monotonic())
        until_s = time.monotonic() + 30
        while not (
            all(v.wish.settled for v in viewers) and ask_node(lower["requests"]).above[0].settled
        ):
            if time.monotonic() > until_s:
                raise click.ClickException("interest did not settle within 30 s")
            for one in viewers:
                one.turn(time.monotonic())
            time.sleep(0.002)
        said = [ask_node(one["requests"]).above[0].said for one in (lower, upper)]
        context.destroy(linger=0)
    return said
