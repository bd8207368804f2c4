"""A full disk has a way out: what frees space works there, and puts then continue (rule R37)."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest

from reliable_pubsub import TryLaterError
from reliable_pubsub.lab.rig.disk import SmallDisk

from .harness import BELIEVING, PATIENCE_S, Service, eventually
from .test_disk_full import a_body, fill_by_puts, small_disk, storage_full

SIZE_MIB = 24
LONG_AGO_S = 86_400


@pytest.fixture
def disk(service: Service) -> Iterator[SmallDisk]:
    """A small disk with a proxy whose store has filled it; everything is acknowledged."""
    service.file("proxy.yaml", f"history_s: {LONG_AGO_S}\n")
    with small_disk(service, size_mib=SIZE_MIB, ballast_mib=0) as disk:
        start(service, disk)
        with (
            service.open_subscriber("s") as subscriber,
            service.open_publisher("p", retry=BELIEVING) as publisher,
        ):
            subscriber.subscribe("t")
            stored = len(fill_by_puts(publisher))
            for number in range(stored):
                assert subscriber.get("t", timeout_s=PATIENCE_S)[0].payload == a_body(number)
            subscriber.acknowledge("t")
        disk.fill()
        assert storage_full(service)
        yield disk


def start(service: Service, disk: SmallDisk) -> None:
    service.start_proxy("-f", service.directory / "proxy.yaml", prefix=disk.enter)


def by_retention(service: Service, disk: SmallDisk) -> None:
    service.file("proxy.yaml", "history_s: 1\n")
    service.proxy.signal(signal.SIGHUP)


def by_truncate(service: Service, disk: SmallDisk) -> None:
    admin(service, "truncate", "t", "now")


def by_deletion(service: Service, disk: SmallDisk) -> None:
    with service.open_subscriber("s") as subscriber:
        subscriber.unsubscribe("t")
    admin(service, "delete-topic", "t")


def by_restart(service: Service, disk: SmallDisk) -> None:
    service.file("proxy.yaml", "history_s: 1\n")
    service.proxy.kill()
    start(service, disk)


def by_compact(service: Service, disk: SmallDisk) -> None:
    by_truncate(service, disk)
    assert service.proxy.terminate() == 0
    service.run("", "compact", service.data_dir, prefix=disk.enter).done()
    start(service, disk)


def admin(service: Service, *arguments: str) -> None:
    there = ("--endpoint", service.subscriber_endpoint)
    service.run("", "admin", *arguments, "--yes", *there).done()


@pytest.mark.parametrize(
    "free",
    [by_retention, by_truncate, by_deletion, by_restart, by_compact],
    ids=lambda f: f.__name__,
)
def test_puts_continue_after_space_was_freed(
    service: Service, disk: SmallDisk, free: Callable[[Service, SmallDisk], None]
) -> None:
    free(service, disk)

    eventually(lambda: not storage_full(service) or None, "room on the disk")
    with service.open_publisher("q", retry=BELIEVING) as publisher:
        for number in range(20):
            publisher.put("u", a_body(number))
    assert len(service.payloads("u")) == 20


def test_the_state_is_shown_until_there_is_room(service: Service, disk: SmallDisk) -> None:
    """It was shown for a second after each put that failed."""
    with service.open_publisher("q", retry=BELIEVING) as publisher:
        for _ in range(3):
            with pytest.raises(TryLaterError):
                publisher.put("t", a_body(0))
            assert storage_full(service)
