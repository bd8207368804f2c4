"""`pipeline replay`: several topics, each in its order, from the proxy or from an archive."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from reliable_pubsub.common.core.errors import ConflictError, DamagedError, UsageError
from reliable_pubsub.pipeline import replay, replaying
from reliable_pubsub.pipeline.archive import archived_files
from reliable_pubsub.pipeline.archive_tasks import rows_of
from reliable_pubsub.pipeline.core.planning import MessageRange
from reliable_pubsub.pipeline.job import Access
from reliable_pubsub.pipeline.replay import ReplayTopic, replay_topic
from reliable_pubsub.pipeline.replaying import targets_of
from tests.integration.harness import STUBBORN, Service

from .test_archive import catch_up
from .test_spark_source import put
from .test_stream import a_log


def test_each_topic_is_put_in_its_order_once_by_the_command(
    service: Service,
) -> None:
    service.start_proxy()
    put(service, "a", 5)
    put(service, "b", 7)
    words = [
        *("--topic", "a", "--topic", "b", "--to", "{topic}-again", "--endpoint"),
        *(service.publisher_endpoint, "--subscriber-endpoint", service.subscriber_endpoint),
    ]

    said = [CliRunner().invoke(replaying.main, words).stdout for _ in range(2)]
    CliRunner().invoke(replaying.main, [*words, "--replay-id", "one"])

    assert said == [
        "done: 12 messages put on a-again, b-again, 0 were there\n",
        "done: 0 messages put on a-again, b-again, 12 were there\n",
    ]
    assert [int(one) for one in service.payloads("a-again")] == [*range(5)] * 2
    assert [int(one) for one in service.payloads("b-again")] == [*range(7)] * 2


class TestAReplay:
    @pytest.fixture
    def work(self, service: Service) -> ReplayTopic:
        """A hundred messages of topic t, for a replay to topic u."""
        service.start_proxy()
        with service.open_publisher("p") as publisher:
            for n in range(100):
                publisher.put("t", b"%d" % n, key=b"k%d" % n, headers={"n": "h"}, event_time_ns=n)
        return ReplayTopic(
            wanted=MessageRange("t", service.topic("t").log, 0, 100),
            target="u",
            client="replay.u",
            access=Access(service.subscriber_endpoint, service.publisher_endpoint, STUBBORN),
        )

    def test_keeps_keys_headers_and_event_times(self, service: Service, work: ReplayTopic) -> None:
        assert replay_topic(work).put == 100

        assert [int(one) for one in service.payloads("u")] == [*range(100)]
        with service.open_subscriber("reader") as reader:
            (one,) = reader.history("u", 70, max_messages=1)
        assert (one.key, one.headers, one.event_time_ns) == (b"k70", {"n": "h"}, 70)

    def test_at_a_rate_puts_no_more_a_second(
        self, work: ReplayTopic, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        slept_s: list[float] = []
        clock = SimpleNamespace(monotonic=lambda: sum(slept_s), sleep=slept_s.append)
        monkeypatch.setattr(replay, "time", clock)

        assert replay_topic(replace(work, rate=20)).put == 100
        assert sum(slept_s) == 4  # before the second to the fifth twenty
        assert replay_topic(replace(work, client="replay.v", target="v")).put == 100
        assert sum(slept_s) == 4

    def test_of_a_past_that_was_changed_is_refused(
        self, service: Service, work: ReplayTopic
    ) -> None:
        with service.open_publisher(work.client) as publisher:
            publisher.put_many("u", [b"0", b"other"])

        with pytest.raises(ConflictError, match="record 2 is another one"):
            replay_topic(work)

    def test_may_read_an_archive_whose_files_are_checked_and_read_from_their_middle(
        self, service: Service, work: ReplayTopic
    ) -> None:
        folder = service.directory / "archive"
        catch_up(a_log(4, 30, 5), folder)
        files = [*archived_files(folder)]
        wanted = MessageRange("t", files[0].manifest.log, 2, 39)
        archived = replace(work, wanted=wanted, archive=str(folder))

        assert replay_topic(archived).put == 37
        assert [int(one[1:]) for one in service.payloads("u")] == [*range(3, 40)]
        (read,) = rows_of(files[0].manifest, files[0].path, ["offset"], replace(wanted, end=3))
        assert read.column(0).to_pylist() == [2]

        Path(files[-1].path).write_bytes(b"changed")
        with pytest.raises(DamagedError, match="the file was changed"):
            replay_topic(replace(archived, client="other"))


@pytest.mark.parametrize(
    ("target", "text"),
    [("c", "several topics need one each"), ("{topic}", r"--to is the topic itself \(a\)")],
)
def test_a_target_that_would_mix_topics_is_refused(target: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        targets_of(["a", "b"], target)


@pytest.mark.parametrize(
    ("offsets", "said"),
    [
        (("--from-offset", "4"), "ends at offset 3, 4 is above"),
        (("--to-offset", "4"), "ends at offset 3, 4 is above"),
        (("--from-offset", "2", "--to-offset", "1"), "ends at offset 1, 2 is above"),
    ],
)
@pytest.mark.parametrize("is_archived", [False, True])
def test_a_replay_of_offsets_that_are_not_there_is_refused(
    offsets: Sequence[str], said: str, is_archived: bool, tmp_path: Path, service: Service
) -> None:
    where = ["--subscriber-endpoint", service.subscriber_endpoint]
    if is_archived:
        catch_up(a_log(3), tmp_path / "archive")
        where += ["--archive", str(tmp_path / "archive")]
    else:
        service.start_proxy()
        with service.open_publisher("p") as publisher:
            publisher.put_many("t", [b"1", b"2", b"3"])

    refused = CliRunner().invoke(replaying.main, ["--topic", "t", "--to", "u", *where, *offsets])

    assert refused.exit_code != 0
    assert said in " ".join(refused.output.split())
