"""Files into topics and the past of a topic into another one: each record once, at every repeat."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.errors import ConfigurationError, ConflictError
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.pipeline.core.loss import DataLossError
from reliable_pubsub.pipeline.job import Access
from reliable_pubsub.pipeline.loading import (
    LoadFile,
    load_file,
    named_files,
    other_parts,
    places,
    publisher_of_file,
    refuse_other_cut,
)
from reliable_pubsub.pipeline.numbered import BATCH_RECORDS, SourceOutcome
from reliable_pubsub.pipeline.records import (
    FORMATS,
    Columns,
    Format,
    format_of,
    places_of,
    records_of,
)
from reliable_pubsub.pipeline.replay_tasks import RateLimiter, archived_batches, archived_past
from reliable_pubsub.pipeline.replaying import replay_client
from tests.integration.harness import STUBBORN, Service, losing_link

from .test_archive import catch_up
from .test_stream import a_log

IMPATIENT = RetryPolicy(timeout_s=1.0, retries_max=0)
ALL = Columns()


class TestTheRecordsOf:
    def test_a_text_are_its_lines_as_they_are(self, tmp_path: Path) -> None:
        path = tmp_path / "a.log"
        path.write_bytes(b" one \r\n\n\xfftwo")

        assert [one.value for one in records_of(path, "text", ALL)] == [b" one ", b"", b"\xfftwo"]

    def test_a_csv_are_its_rows_as_json_or_the_columns_that_are_named(self, tmp_path: Path) -> None:
        path = tmp_path / "a.csv"
        path.write_text('id,name,place\n1,"A, B",\n')

        (whole,) = records_of(path, "csv", ALL)
        (named,) = records_of(path, "csv", Columns("name", "id", ("place",)))

        assert json.loads(whole.value) == {"id": "1", "name": "A, B", "place": ""}
        assert (named.value, named.key, named.headers) == (b"A, B", b"1", {"place": ""})

    def test_json_lines_are_numbers_and_text(self, tmp_path: Path) -> None:
        path = tmp_path / "a.jsonl"
        path.write_text('{"id": 7, "v": "x", "h": null}\n\n{"id": 8, "v": {"a": 1}, "h": "y"}\n')

        first, second = records_of(path, "jsonl", Columns("v", "id", ("h",)))

        assert (first.value, first.key, first.headers) == (b"x", b"7", None)
        assert (second.value, second.key, second.headers) == (b'{"a":1}', b"8", {"h": "y"})

    def test_parquet_are_its_rows(self, tmp_path: Path) -> None:
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"id": [1, 2], "raw": [b"\x00", None]}), path)

        first, second = records_of(path, "parquet", Columns("raw", "id"))

        assert (first.value, first.key) == (b"\x00", b"1")
        assert second.key == b"2"

    @pytest.mark.parametrize(
        ("form", "content", "columns", "message"),
        [
            ("csv", "a,b\n1,2,3\n", ALL, "another number of cells"),
            ("csv", "a,b\n1,2\n", Columns("c"), "row 1: has no column 'c'; it has a, b"),
            ("jsonl", "{\n", ALL, "is not jsonl"),
            ("parquet", "hello", ALL, "is not parquet"),
            ("text", "hello", Columns("c"), "has no columns"),
        ],
    )
    def test_a_file_that_is_something_else_are_refused(
        self, tmp_path: Path, form: Format, content: str, columns: Columns, message: str
    ) -> None:
        path = tmp_path / "a"
        path.write_text(content)

        with pytest.raises(ConfigurationError, match=message):
            list(records_of(path, form, columns))


def four_rows(folder: Path, form: Format) -> Path:
    path = folder / f"a.{form}"
    if form == "parquet":
        pq.write_table(pa.table({"v": ["0", "1", "2", "3"]}), path, row_group_size=3)
    else:
        rows = {"text": "0\n1\n2\n3", "csv": 'v\n0\n1\n"2"\n\n3\n'}
        path.write_text(rows.get(form) or "".join(f'{{"v": "{n}"}}\n\n' for n in range(4)))
    return path


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_can_be_read_from_a_row_on_by_its_number_and_by_its_place(
    form: Format, tmp_path: Path
) -> None:
    path = four_rows(tmp_path, form)
    columns = ALL if form == "text" else Columns("v")
    places = places_of(path, form, 1)

    assert len(places) == 4
    assert places_of(path, form, 3) == places[::3]
    for first, at in enumerate([*places, 0, 0]):
        for place in (0, at):
            left = [one.value for one in records_of(path, form, columns, first, place)]
            assert left == [b"0", b"1", b"2", b"3"][first:]


def test_a_row_of_csv_may_have_several_lines_and_the_file_a_mark_at_its_begin(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.csv"
    path.write_text('\ufeffv\r\n"ü\r\n"""\r\n\r\n"1\n2"\r\n3', newline="")

    places = places_of(path, "csv", 1)

    read = [next(records_of(path, "csv", Columns("v"), row, at)) for row, at in enumerate(places)]
    assert [one.value.decode() for one in read] == ['ü\r\n"', "1\n2", "3"]


def test_a_part_of_a_file_is_read_from_its_place_without_what_is_before_it(tmp_path: Path) -> None:
    lines_path, parquet = tmp_path / "a.jsonl", four_rows(tmp_path, "parquet")
    lines_path.write_text('{"v": "0"}\n{"v": "1"}\n')
    (_, at) = places_of(lines_path, "jsonl", 1)
    lines_path.write_bytes(b"x" * at + lines_path.read_bytes()[at:])
    damaged = parquet.read_bytes()
    parquet.write_bytes(damaged[:4] + b"x" * 8 + damaged[12:])

    of_lines = list(records_of(lines_path, "jsonl", Columns("v"), 1, at))
    of_parquet = list(records_of(parquet, "parquet", Columns("v"), 3))

    assert [one.value for one in (*of_lines, *of_parquet)] == [b"1", b"3"]


def test_a_file_counts_under_its_path_below_the_base(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "data").mkdir(parents=True)
        (tmp_path / name / "data" / "a.csv").touch()

    ((name, _),) = named_files((tmp_path / "one" / "data",), tmp_path / "one")
    ((same, _),) = named_files((tmp_path / "two" / "data",), tmp_path / "two")
    ((full, _),) = named_files((tmp_path / "two" / "data" / "a.csv",), None)

    assert name == same == "data/a.csv"
    assert publisher_of_file(full) != publisher_of_file(name)
    assert format_of(Path("x.NDJSON")) == "jsonl"
    with pytest.raises(ConfigurationError, match="is not below"):
        named_files((tmp_path / "one" / "data",), tmp_path / "two")


@pytest.fixture
def load(service: Service) -> Callable[..., SourceOutcome]:
    """Load a text file into topic t of a running proxy."""
    service.start_proxy()

    def act(path: Path, *, endpoint: str = "", retry: RetryPolicy = STUBBORN) -> SourceOutcome:
        return load_file(
            LoadFile(
                path=str(path),
                name=path.name,
                topic="t",
                form="text",
                columns=ALL,
                access=Access(
                    service.subscriber_endpoint, endpoint or service.publisher_endpoint, retry
                ),
            )
        )

    return act


def lines(path: Path, count: int) -> list[bytes]:
    content = [b"line %d" % n for n in range(count)]
    path.write_bytes(b"\n".join(content))
    return content


class TestLoading:
    def test_again_puts_nothing_and_continues_where_a_file_has_grown(
        self, service: Service, load: Callable[..., SourceOutcome]
    ) -> None:
        path = service.directory / "a.txt"
        lines(path, 1500)

        first, again = load(path), load(path)
        content = lines(path, 1600)
        grown = load(path)

        assert (first.put, again.put, grown.put) == (1500, 0, 100)
        assert (again.stored_before, grown.stored_before) == (1500, 1500)
        assert service.payloads("t") == content

    def test_a_file_that_was_changed_is_refused(
        self, service: Service, load: Callable[..., SourceOutcome]
    ) -> None:
        path = service.directory / "a.txt"
        content = lines(path, 20)
        load(path)

        path.write_bytes(b"\n".join([b"new", *content]))
        with pytest.raises(ConflictError, match="record 20 is another one"):
            load(path)
        lines(path, 19)
        with pytest.raises(ConflictError, match="it has fewer now"):
            load(path)
        assert service.payloads("t") == content

    def test_that_failed_in_the_middle_is_made_whole_by_the_next_run(
        self, service: Service, load: Callable[..., SourceOutcome]
    ) -> None:
        path = service.directory / "a.txt"
        content = lines(path, 5 * BATCH_RECORDS)

        # Two answers for the greeting, one for the first batch; that to the second one is lost.
        with (
            losing_link(service.publisher_endpoint, answers=3) as link,
            pytest.raises(Exception, match="in doubt"),
        ):
            load(path, endpoint=link.endpoint, retry=IMPATIENT)
        rest = load(path)

        assert rest.stored_before in (BATCH_RECORDS, 2 * BATCH_RECORDS)
        assert service.payloads("t") == content


class TestLoadingInParts:
    @pytest.fixture
    def work(self, service: Service) -> LoadFile:
        """A text file whose parts are a thousand rows."""
        service.start_proxy()
        path = service.directory / "a.txt"
        lines(path, 2 * BATCH_RECORDS + 500)
        return LoadFile(
            path=str(path),
            name="a.txt",
            topic="t",
            form="text",
            columns=ALL,
            access=Access(service.subscriber_endpoint, service.publisher_endpoint, STUBBORN),
            rows_per_part=BATCH_RECORDS,
        )

    def test_puts_each_row_once_whatever_part_comes_first_and_continues_where_it_has_grown(
        self, service: Service, work: LoadFile
    ) -> None:
        def run() -> list[int]:
            first = replace(work, part=0)
            others = other_parts([first], [places(work)])
            return [load_file(one).put for one in [first, *reversed(others)]]

        put, again = run(), run()
        content = lines(Path(work.path), 3 * BATCH_RECORDS + 7)
        grown = run()

        assert (put, again) == ([BATCH_RECORDS, 500, BATCH_RECORDS], [0, 0, 0])
        assert grown == [0, 7, BATCH_RECORDS - 500, 0]
        assert sorted(service.payloads("t")) == sorted(content)

    def test_is_refused_for_a_file_that_was_loaded_whole_and_the_other_way_round(
        self, work: LoadFile
    ) -> None:
        part = replace(work, part=0)
        refuse_other_cut(part)
        load_file(part)
        refuse_other_cut(part)

        with pytest.raises(ConflictError, match="was loaded in parts, and is now to be loaded who"):
            refuse_other_cut(work)
        other = replace(work, name="b.txt")
        load_file(other)
        with pytest.raises(ConflictError, match="was loaded whole, and is now to be loaded in par"):
            refuse_other_cut(replace(other, part=0))


class Clock:
    """A clock that continues by sleeping."""

    def __init__(self) -> None:
        self.time_s = 100.0

    def now_s(self) -> float:
        return self.time_s

    def sleep(self, seconds: float) -> None:
        self.time_s += seconds


def test_a_pace_lets_so_many_go_in_a_second() -> None:
    clock = Clock()
    pace = RateLimiter(50, now_s=clock.now_s, sleep=clock.sleep)

    for _ in range(11):
        pace.wait(100)

    assert clock.time_s == 120.0


def test_a_pace_gives_no_second_much_more_than_its_messages() -> None:
    clock = Clock()
    paces = [
        RateLimiter(rate, now_s=clock.now_s, sleep=clock.sleep) for rate in (0.1, 50, 10**6, None)
    ]

    assert [pace.batch(2_000) for pace in paces] == [1, 50, 2_000, 2_000]


class TestAnArchivedPast:
    def test_is_a_range_of_it_across_its_files(self, tmp_path: Path) -> None:
        catch_up(a_log(4, 1, 5), tmp_path)

        wanted, files = archived_past(tmp_path, "t", 2, 9)

        assert [one for batch in archived_batches(wanted, files) for one in batch.payloads] == [
            b"m%d" % n for n in range(3, 10)
        ]
        same, _ = archived_past(tmp_path, "t", 2, 9)
        assert replay_client(wanted, "u") == replay_client(same, "u")
        assert replay_client(wanted, "u") != replay_client(wanted, "v")

    def test_that_is_not_all_there_is_refused(self, tmp_path: Path) -> None:
        catch_up(a_log(4), tmp_path)

        with pytest.raises(DataLossError, match="offsets 4 to 5 "):
            archived_past(tmp_path, "t", 0, 6)
        with pytest.raises(ConfigurationError, match="nothing of topic 'u'"):
            archived_past(tmp_path, "u", None, None)


class Replay:
    """`pipeline replay` of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def run(self, *arguments: str) -> str:
        """To its end; returns what it says."""
        service = self._service
        process = service.run(
            "pipeline",
            *("replay", "--endpoint", service.publisher_endpoint, "--subscriber-endpoint"),
            *(service.subscriber_endpoint, "--quiet", *arguments),
        )
        process.done()
        return process.stdout


def test_a_replay_keeps_keys_headers_and_times_and_puts_each_once(service: Service) -> None:
    service.start_proxy()
    with service.open_publisher("p") as publisher:
        for n in range(6):
            publisher.put("t", b"%d" % n, key=b"k", headers={"n": str(n)}, event_time_ns=n)
    replay = Replay(service)
    some = ("--topic", "t", "--to", "u", "--from-offset", "2")

    said = [replay.run(*some), replay.run(*some)]
    said.append(replay.run("--topic", "t", "--to", "u", "--replay-id", "again"))

    counts = [text.split(" messages")[0] for text in said]
    assert counts == ["done: 4", "done: 0", "done: 6"]
    messages = list(all_of(service, "u"))
    assert [int(one.payload) for one in messages] == [2, 3, 4, 5, 0, 1, 2, 3, 4, 5]
    assert messages[0].headers == {"n": "2"}
    assert (messages[0].key, messages[0].event_time_ns) == (b"k", 2)


def test_a_replay_of_a_topic_that_has_grown_continues_and_puts_each_once(service: Service) -> None:
    service.start_proxy()
    replay = Replay(service)
    said = []
    for ids in (range(3), range(3, 5)):
        with service.open_publisher("p") as publisher:
            publisher.put_many("t", [b"%d" % n for n in ids])
        said.append(replay.run("--topic", "t", "--to", "u"))

    assert said[-1] == "done: 2 messages put on u, 3 were there\n"
    assert [int(one.payload) for one in all_of(service, "u")] == [0, 1, 2, 3, 4]


def all_of(service: Service, topic: str) -> Iterator[Message]:
    with service.open_subscriber("reader") as reader:
        yield from reader.history(topic, 0, max_messages=1000)
