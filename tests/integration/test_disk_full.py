"""A disk that is really full: a small tmpfs in a mount namespace of its own.

Puts are refused, gets are served, nothing acknowledged is lost, and when there is space again the
proxy continues unaided. Where namespaces are not allowed, a file size limit shows the other half:
a write that fails for another reason ends the process.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec import UNSET

from reliable_pubsub import ProxyUnreachableError, Publisher, Receipt, TryLaterError
from reliable_pubsub.common.core.limits import MIB
from reliable_pubsub.lab.child_process import NotReadyError

from .harness import (
    BELIEVING,
    BELIEVING_OPTIONS,
    IMPATIENT,
    PATIENCE_S,
    Process,
    Service,
    eventually,
)

SIZE_MIB = 32
BALLAST_MIB = 20  # what is left is about the log of SQLite (8 MiB) and a little
BODY_BYTES = 100_000


class SmallDisk:
    """A tmpfs that only the processes inside see; the ballast is space that can be freed."""

    def __init__(
        self, service: Service, *, size_mib: int = SIZE_MIB, ballast_mib: int = BALLAST_MIB
    ) -> None:
        """Mount it, and fill most of it.

        Raises:
            pytest.skip.Exception: this machine does not allow it.
        """
        service.data_dir.mkdir()
        script = (
            f"mount -t tmpfs -o size={size_mib}m none {service.data_dir} && "
            f"head -c {ballast_mib}M /dev/zero > {service.data_dir}/ballast && "
            "echo ready: disk && exec sleep 1000"
        )
        try:
            self._holder = service.run_command(
                "disk", ["unshare", "--map-root-user", "--mount", "sh", "-c", script]
            )
            self._holder.ready()
        except (NotReadyError, OSError) as error:
            pytest.skip(f"no mount namespace of our own here: {error}")
        self.enter = (
            "nsenter",
            f"--target={self._holder.pid}",
            "--user",
            "--mount",
            "--preserve-credentials",
            f"--wd={service.directory}",
            "--",
        )
        self._ballast = service.data_dir / "ballast"

    def give_space(self) -> None:
        """Remove the ballast."""
        subprocess.run([*self.enter, "rm", self._ballast], check=True, timeout=PATIENCE_S)

    def fill(self) -> None:
        """Fill what is left; that this fails is the point."""
        command = f"cat /dev/zero > {self._ballast}.more"
        subprocess.run(
            [*self.enter, "sh", "-c", command],
            check=False,
            timeout=PATIENCE_S,
            stderr=subprocess.DEVNULL,
        )


@pytest.fixture
def disk(service: Service) -> Iterator[SmallDisk]:
    """A proxy that runs on a small disk."""
    disk = SmallDisk(service)
    service.start_proxy(prefix=disk.enter)
    yield disk
    assert service.proxy.exit_code is None, service.proxy.stderr


def a_body(number: int) -> bytes:
    return b"%08d" % number + bytes(BODY_BYTES)


def fill_by_puts(publisher: Publisher) -> list[Receipt]:
    """Put until the disk is full; the last message is in doubt."""
    receipts: list[Receipt] = []
    while len(receipts) < SIZE_MIB * MIB // BODY_BYTES:
        try:
            receipts.append(publisher.put("t", a_body(len(receipts))))
        except TryLaterError as refused:
            code = refused.code
            break
    else:
        code = "never full"
    assert code == "STORAGE_FULL"
    assert receipts, "the disk was full from the start"
    return receipts


def check(service: Service, count: int) -> None:
    """The proxy has messages 0 .. count - 1, each once, in order."""
    with service.open_subscriber("auditor") as auditor:
        for number in range(count):
            (message,) = auditor.history("t", number, max_messages=1)
            assert (message.offset, message.payload) == (number, a_body(number))
        assert auditor.history("t", count) == []


def test_a_full_disk_refuses_puts_serves_gets_and_loses_nothing(
    service: Service, disk: SmallDisk
) -> None:
    subscriber = service.open_subscriber("s")
    publisher = service.open_publisher("p", retry=BELIEVING, state_dir=service.state_dir)
    with subscriber, publisher:
        subscriber.subscribe("t")
        stored = len(fill_by_puts(publisher))
        assert service.topic("t").end == stored

        for number in range(stored):  # gets, with their cursors, while puts are refused
            assert subscriber.get("t", timeout_s=PATIENCE_S)[0].payload == a_body(number)
        assert subscriber.get("t") == []
        eventually(
            lambda: resumed(publisher) is None and storage_full(service),
            "full disk in the status",
        )
        check(service, stored)

        disk.give_space()
        receipt = eventually(lambda: resumed(publisher), "space for the message in doubt")
        assert (receipt.offset, receipt.count) == (stored, 1)
        assert publisher.put("t", a_body(stored + 1)).offset == stored + 1
        assert subscriber.get("t", timeout_s=PATIENCE_S)[0].payload == a_body(stored)
        subscriber.acknowledge("t")
        check(service, stored + 2)
    service.proxy.kill()
    service.start_proxy(prefix=disk.enter)
    check(service, stored + 2)


def storage_full(service: Service) -> bool:
    committer = service.status().committer
    assert committer is not UNSET
    return committer.storage_full


def resumed(publisher: Publisher) -> Receipt | None:
    try:
        return publisher.resume()
    except TryLaterError:
        return None


def test_a_proxy_killed_on_a_full_disk_starts_there_and_has_everything(
    service: Service, disk: SmallDisk
) -> None:
    with service.open_publisher("p", retry=BELIEVING) as publisher:
        stored = len(fill_by_puts(publisher))
    disk.fill()
    service.proxy.kill()

    service.start_proxy(prefix=disk.enter)

    check(service, stored)
    with (
        service.open_publisher("q", retry=BELIEVING) as publisher,
        pytest.raises(TryLaterError),
    ):
        publisher.put("t", a_body(stored))
    disk.give_space()
    with service.open_publisher("q") as publisher:
        publisher.put("t", a_body(stored))
    check(service, stored + 1)


def test_the_publisher_command_ends_with_exit_code_3_and_finishes_later(
    service: Service, disk: SmallDisk
) -> None:
    plan = f"""
        steps: [{{topic: t, message: {"x" * 50_000}, number_of_times: 300}}]
    """
    publisher = service.publisher("p", plan, options=BELIEVING_OPTIONS)

    assert publisher.wait() == 3
    text = " ".join(publisher.stderr.split())
    assert "STORAGE_FULL" in text
    assert "the proxy's disk is full" in text
    disk.give_space()
    service.publisher("p", plan).done()

    assert service.payloads("t") == [b"x" * 50_000 + b"_%d" % n for n in range(1, 301)]


def test_many_publishers_on_a_full_disk_lose_nothing_acknowledged(
    service: Service, disk: SmallDisk
) -> None:
    """The failed commit holds records of many; those after it in the queue fail with it."""
    clients = [f"p{number}" for number in range(8)]
    all_began = threading.Barrier(len(clients), timeout=PATIENCE_S)

    def put_until_full(client: str) -> list[Receipt]:
        receipts: list[Receipt] = []
        with service.open_publisher(client, retry=BELIEVING) as publisher:
            while True:
                try:
                    payload = f"{client}_{len(receipts)}".encode() + bytes(20_000)
                    receipts.append(publisher.put("t", payload))
                except TryLaterError:
                    return receipts
                if len(receipts) == 1:
                    all_began.wait()  # else the first ones leave no space for the last one

    with ThreadPoolExecutor(len(clients)) as threads:
        receipts = dict(zip(clients, threads.map(put_until_full, clients), strict=True))
    disk.give_space()
    stored = service.payloads("t")
    for client, mine in receipts.items():
        for number, receipt in enumerate(mine):
            assert receipt.offset is not None
            assert stored[receipt.offset].startswith(f"{client}_{number}\0".encode())
    assert len(set(stored)) == len(stored)
    service.proxy.kill()
    service.start_proxy(prefix=disk.enter)
    assert service.payloads("t") == stored


def test_a_write_that_fails_for_another_reason_ends_the_proxy(service: Service) -> None:
    """A file size limit gives EFBIG: not "full", so the file must not be written again."""
    limit = ["prlimit", f"--fsize={12 * MIB}", "--"]
    proxy: Process = service.start_proxy(prefix=limit)
    receipts: list[Receipt] = []
    with service.open_publisher("p", retry=IMPATIENT) as publisher:
        while proxy.exit_code is None and len(receipts) < 500:
            try:
                receipts.append(publisher.put("t", a_body(len(receipts))))
            except ProxyUnreachableError:
                proxy.wait()

    assert proxy.wait() == 5
    assert "STORAGE_FAILED" in proxy.stderr
    service.start_proxy()
    check_at_least(service, len(receipts))


def check_at_least(service: Service, count: int) -> None:
    assert service.topic("t").end in (count, count + 1)  # the unheard one may be there
    assert service.payloads("t")[:count] == [a_body(number) for number in range(count)]
