"""What `reliable-pubsub restore` says that clients will see, seen by real clients."""

from __future__ import annotations

import pytest

from reliable_pubsub import LogChangedError, Subscriber

from .harness import PATIENCE_S, Service


def got(subscriber: Subscriber, count: int) -> list[bytes]:
    """At least this many messages."""
    payloads: list[bytes] = []
    while len(payloads) < count:
        messages = subscriber.get("t", max_messages=9, timeout_s=PATIENCE_S)
        assert messages, payloads
        payloads += [message.payload for message in messages]
    return payloads


def test_after_a_restore_those_that_were_further_stop_and_all_others_continue(
    service: Service,
) -> None:
    service.start_proxy()
    backup, restored = service.directory / "backup", service.directory / "restored"
    state = service.state_dir
    with (
        service.open_publisher("ahead", state_dir=state) as publisher,
        service.open_publisher("calm", state_dir=state) as calm,
        service.open_subscriber("ahead", state_dir=state) as reader,
        service.open_subscriber("slow", state_dir=state) as slow,
    ):
        for one in (reader, slow):
            one.subscribe("t")
        publisher.put_many("t", [b"1", b"2"])
        calm.put("t", b"3")
        service.run("", "backup", str(backup), "--data-dir", service.data_dir).done()
        publisher.put("t", b"4")
        assert len(got(reader, 4)) == 4
        assert reader.get("t") == []  # and so they are acknowledged
        assert len(slow.get("t", max_messages=1, timeout_s=PATIENCE_S)) == 1
    assert service.proxy.terminate() == 0

    process = service.run("", "restore", str(backup), str(restored))
    process.done()
    service.data_dir = restored
    service.start_proxy()

    assert "messages=3" in process.stdout
    stops = pytest.raises(LogChangedError)
    with service.open_publisher("ahead", state_dir=state) as publisher, stops:
        publisher.put("t", b"5")
    with service.open_subscriber("ahead", state_dir=state) as reader, stops:
        reader.get("t", timeout_s=PATIENCE_S)
    with service.open_publisher("calm", state_dir=state) as calm:
        assert calm.put("t", b"6").offset == 3
    with service.open_publisher("ahead", state_dir=state, on_log_changed="adopt") as publisher:
        assert publisher.put("t", b"7").offset == 4
    with service.open_subscriber("slow", state_dir=state) as slow:
        seen = got(slow, 4)
        seen += [one.payload for one in slow.get("t", max_messages=9)]
    assert seen[-4:] == [b"2", b"3", b"6", b"7"]  # before them, perhaps, what it had in hand
    with service.open_subscriber("ahead", state_dir=state, on_log_changed="rewind") as reader:
        first = reader.get("t", max_messages=9, timeout_s=PATIENCE_S)
    assert first[0].offset == 0


@pytest.mark.parametrize("way", ["a series", "a file"])
def test_an_empty_host_gets_last_nights_backup_and_has_all_of_its_messages(
    service: Service, way: str
) -> None:
    """The drill of docs/how-to/back-up.md."""
    service.start_proxy()
    host = service.directory / "new-host"
    host.mkdir()
    series = service.directory / "backups"
    source = ("--data-dir", service.data_dir)
    with service.open_publisher("p") as publisher:
        publisher.put_many("t", [f"{n}".encode() for n in range(100)])
        for _ in range(2):
            service.run("", "backup", series, *source, "--keep", "1d").done()
        stream = service.run("", "backup", "-", *source)
        stream.done()
        publisher.put_many("t", [b"after the backup"] * 10)
    service.proxy.kill()
    assert len(list(series.iterdir())) == 1  # the rotation has removed the other
    backup = series if way == "a series" else stream.output.rename(host / "backup.tar")
    service.data_dir = host / "proxy-data"

    restored = service.run("", "restore", backup, service.data_dir)
    restored.done()
    service.start_proxy()

    assert "messages=100" in restored.stdout
    assert service.payloads("t") == [f"{n}".encode() for n in range(100)]
