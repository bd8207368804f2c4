"""The store in PostgreSQL, in what the contract of a store does not say: terms and promises."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from reliable_pubsub.common.core.errors import (
    ConfigurationError,
    DamagedError,
    StorageFailedError,
)
from reliable_pubsub.common.core.message_base import Durability
from reliable_pubsub.proxy import check
from reliable_pubsub.proxy.check import check_store
from reliable_pubsub.proxy.core.records import TopicCreated
from reliable_pubsub.proxy.core.rows import statements
from reliable_pubsub.proxy.core.server_promise import ServerPromise, promise_of
from reliable_pubsub.proxy.core.serving import TIMING, ServingTiming
from reliable_pubsub.proxy.core.storage import NotServingError, StorageFullError
from reliable_pubsub.proxy.postgres_sql import in_columns
from tests.fakes import a_beginning, an_append
from tests.integration.harness import PATIENCE_S, eventually
from tests.postgres import needs_postgresql, shared_server

if TYPE_CHECKING:
    from reliable_pubsub.proxy.postgres_store import PostgresStore

SAFE = ServerPromise("on", "on", "")


class TestThePromise:
    @pytest.mark.parametrize(
        ("server", "promise"),
        [
            (SAFE, "sync"),
            (ServerPromise("on", "local", "second"), "sync"),
            (ServerPromise("on", "remote_write", "second"), "sync"),
            (ServerPromise("on", "on", "second"), "replicated"),
            (ServerPromise("on", "remote_apply", "ANY 1 (a, b)"), "replicated"),
        ],
    )
    def test_is_the_one_of_the_server(self, server: ServerPromise, promise: str) -> None:
        assert promise_of(server, "sync") == promise

    @pytest.mark.parametrize(
        ("server", "name"),
        [
            (ServerPromise("off", "on", "second"), "fsync"),
            (ServerPromise("on", "off", ""), "synchronous_commit"),
        ],
    )
    def test_sync_is_refused_where_a_commit_does_not_wait_for_the_disk(
        self, server: ServerPromise, name: str
    ) -> None:
        with pytest.raises(ConfigurationError, match=f"{name} = off"):
            promise_of(server, "sync")
        assert promise_of(server, "os") == "os"

    @pytest.mark.parametrize("server", [SAFE, ServerPromise("off", "off", "")])
    def test_snapshot_is_refused(self, server: ServerPromise) -> None:
        wanted: Durability = "snapshot"
        with pytest.raises(ConfigurationError, match="snapshot"):
            promise_of(server, wanted)


@needs_postgresql
class TestATerm:
    """Two proxies are two stores here; the second one need not wait."""

    @pytest.fixture
    def dsn(self) -> str:
        return shared_server().new_schema()

    @pytest.fixture(autouse=True)
    def _no_silence(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("reliable_pubsub.proxy.term.TIMING", ServingTiming(silence_s=0.0))

    def test_that_is_over_stores_nothing(self, dsn: str) -> None:
        from reliable_pubsub.proxy.postgres_store import PostgresStore

        with closing(PostgresStore(dsn, "sync")) as first:
            first.commit(a_beginning())
            with closing(PostgresStore(dsn, "sync")) as second:
                with pytest.raises(NotServingError, match="term 1 is over"):
                    first.commit([an_append(0)])
                assert check_store(second.connection).messages == 0
                second.commit([an_append(0)])
                assert check_store(second.connection).messages == 1

    def test_that_is_over_changes_no_row_of_a_damaged_store(self, dsn: str) -> None:
        from reliable_pubsub.proxy.postgres_store import PostgresStore

        with closing(PostgresStore(dsn, "sync")) as first:
            first.commit([*a_beginning(), an_append(0), an_append(1)])
            first.connection.execute("UPDATE batch SET count = 7 WHERE base = 1")
            with closing(PostgresStore(dsn, "sync")) as second:
                with pytest.raises(DamagedError, match="offsets 1 to 1"):
                    check_store(second.connection)
                with pytest.raises(NotServingError):
                    check_store(first.connection, accept_loss=True)
                assert check_store(second.connection, accept_loss=True).messages == 1

    def test_is_not_believed_longer_than_its_beats_are_confirmed(
        self, dsn: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A process that wakes up late: it has heard of no other one yet."""
        from reliable_pubsub.proxy import postgres_store, term
        from reliable_pubsub.proxy.postgres_connection import elapsed_s

        with closing(postgres_store.PostgresStore(dsn, "sync")) as store:
            store.confirm()
            late_s = elapsed_s() + 2 * TIMING.answers_s
            monkeypatch.setattr(term, "elapsed_s", lambda: late_s)

            with pytest.raises(NotServingError, match="may be over"):
                store.confirm()

    def test_that_is_over_ends_a_commit_that_the_server_does_not_answer(
        self, dsn: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The thread that waits for it would keep the process from standing by, and from ending."""
        from reliable_pubsub.proxy import postgres_store, term
        from reliable_pubsub.proxy.postgres_connection import connect, elapsed_s

        waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'serving'::regclass"
        with (
            closing(postgres_store.PostgresStore(dsn, "sync")) as store,
            closing(connect(dsn)) as own,
        ):
            store.term_keeper.end()  # its beats would wait, too
            with own.transaction(), ThreadPoolExecutor(1) as pool:
                own.execute(b"LOCK TABLE serving IN ACCESS EXCLUSIVE MODE")
                commit = pool.submit(store.commit, a_beginning())
                eventually(lambda: own.execute(waits.encode()).fetchall(), "commit that waits")
                late_s = elapsed_s() + 2 * TIMING.answers_s
                monkeypatch.setattr(term, "elapsed_s", lambda: late_s)

                with pytest.raises(NotServingError, match="may be over"):
                    store.confirm()
                with pytest.raises(NotServingError, match="outcome of a commit is unknown"):
                    commit.result(PATIENCE_S)

    def test_ends_with_its_beats_whatever_commits_are_confirmed(self, dsn: str) -> None:
        from reliable_pubsub.proxy.postgres_connection import elapsed_s
        from reliable_pubsub.proxy.postgres_store import PostgresStore

        def is_over() -> bool:
            store.term_keeper.renewed(elapsed_s())  # as each commit does
            try:
                store.confirm()
            except NotServingError as error:
                return "has changed what its commits promise" in str(error)
            return False

        with closing(PostgresStore(dsn, "sync")) as store:
            store.term_keeper._opened.execute(b"SET synchronous_commit = off")
            eventually(is_over, "end of the term")

    def test_that_was_given_back_needs_no_waiting(
        self, dsn: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from reliable_pubsub.proxy.postgres_store import PostgresStore

        monkeypatch.undo()
        PostgresStore(dsn, "sync").close()
        with closing(PostgresStore(dsn, "sync", pause=_no_wait)) as store:
            assert store.term_keeper.term == 2

    def test_is_taken_from_a_proxy_that_was_stopped_in_the_middle_of_sending_a_commit(
        self, dsn: str
    ) -> None:
        """Its session waits for the rest with the row locked; no timeout of the server ends it."""
        from reliable_pubsub.proxy.postgres_store import PostgresStore

        looks = iter(range(20))

        def pause(_seconds: float) -> None:
            assert next(looks, None) is not None, "it never takes over"

        with closing(PostgresStore(dsn, "sync")) as first, half_sent(dsn, term=1):
            impatient = f"{dsn}%20-clock_timeout%3D2000"
            with closing(PostgresStore(impatient, "sync", pause=pause)) as second:
                assert second.term_keeper.term == 2
                with pytest.raises(NotServingError):
                    first.commit(a_beginning())
                second.commit(a_beginning())

    @pytest.mark.parametrize("holder_first", [True, False])
    def test_is_taken_before_the_beat_that_waits_for_that_commit_is_stored(
        self, dsn: str, holder_first: bool
    ) -> None:
        """It would be, once the commit is gone, and a standby would begin to wait again."""
        from reliable_pubsub.proxy.postgres_connection import connect
        from reliable_pubsub.proxy.postgres_store import PostgresStore
        from reliable_pubsub.proxy.term import BEAT, END_WHAT_HOLDS_THE_ROW

        PostgresStore(dsn, "sync").close()
        with ExitStack() as open_ones:
            holding, beating, own = (open_ones.enter_context(closing(connect(dsn))) for _ in "123")
            if not holder_first:
                holding, beating = beating, holding
            holding.execute(b"BEGIN")
            holding.execute(BEAT, (1,))
            beating.pgconn.send_query(BEAT.replace(b"%s", b"1"))
            waiting = b"SELECT pid FROM pg_locks WHERE NOT granted AND pid = %s"
            pids = [beating.info.backend_pid, holding.info.backend_pid]
            eventually(lambda: own.execute(waiting, pids[:1]).fetchone() is not None, "a beat")

            ended = END_WHAT_HOLDS_THE_ROW.replace(b"pg_terminate_backend(pid)", b"pid")
            assert own.execute(ended).fetchall() == [(pid,) for pid in pids]


@contextmanager
def half_sent(dsn: str, *, term: int) -> Iterator[None]:
    """A session that has sent the beginning of a commit."""
    from reliable_pubsub.proxy.postgres_connection import connect
    from reliable_pubsub.proxy.term import BEAT

    with closing(connect(dsn)) as opened:
        sending = opened.pgconn
        sending.enter_pipeline_mode()
        for sql in (b"BEGIN", BEAT.replace(b"%s", b"%d" % term)):
            sending.send_query_params(sql, [])
        sending.send_flush_request()
        answers = [sending.get_result() for _ in range(3)]  # with a None between two queries
        assert answers[2] is not None
        assert answers[2].command_tuples == 1
        yield


def _no_wait(seconds: float) -> None:
    raise AssertionError(f"it waits for {seconds} s")


@needs_postgresql
class TestTheServer:
    def test_that_does_not_wait_for_its_disk_is_refused(self) -> None:
        from reliable_pubsub.proxy.postgres_store import PostgresStore

        dsn = shared_server().new_schema() + "%20-csynchronous_commit%3Doff"

        with pytest.raises(ConfigurationError, match="synchronous_commit = off"):
            PostgresStore(dsn, "sync", pause=_no_wait)
        with closing(PostgresStore(dsn, "os", pause=_no_wait)) as store:
            assert store.promise == "os"

    def test_that_changes_its_promise_gets_no_commit_acknowledged(self) -> None:
        """Not even before the next beat."""
        from reliable_pubsub.proxy.postgres_store import PostgresStore

        with closing(PostgresStore(shared_server().new_schema(), "sync")) as store:
            store._opened.execute(b"SET synchronous_commit = off")  # as a file that is read again
            with pytest.raises(NotServingError, match="has changed what its commits promise"):
                store.commit(a_beginning())

    def test_that_changes_its_promise_is_refused_by_one_that_stands_by(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from reliable_pubsub.proxy import postgres_store
        from reliable_pubsub.proxy.postgres_store import PostgresStore

        dsn = shared_server().new_schema()
        promises = iter([SAFE, SAFE, SAFE, ServerPromise("on", "off", "")])
        looks = iter([None] * 9)

        with closing(PostgresStore(dsn, "os")):
            monkeypatch.setattr(postgres_store, "promise", lambda _: next(promises))
            with pytest.raises(ConfigurationError, match="synchronous_commit = off"):
                PostgresStore(dsn, "sync", pause=lambda _: next(looks))

    def test_may_keep_text_as_it_comes_but_not_in_an_encoding_without_all_names(self) -> None:
        from reliable_pubsub.proxy.postgres_store import PostgresStore

        server = shared_server()
        for name, encoding in (("as_it_comes", "SQL_ASCII"), ("with_few_names", "LATIN1")):
            server.sql(
                f"CREATE DATABASE {name} TEMPLATE template0 LOCALE 'C' ENCODING '{encoding}'"
            )
        at = server.dsn().removesuffix("postgres")
        created = TopicCreated(1, "\N{EURO SIGN}", "log")

        with closing(PostgresStore(f"{at}as_it_comes", "sync", pause=_no_wait)) as store:
            store.commit([created])
            found = store.connection.execute("SELECT topic FROM topic").fetchall()
            assert found == [("\N{EURO SIGN}",)]
        with pytest.raises(ConfigurationError, match="LATIN1"):
            PostgresStore(f"{at}with_few_names", "sync", pause=_no_wait)

    def test_that_ends_quiet_sessions_does_not_end_ours(self) -> None:
        from reliable_pubsub.proxy.postgres_store import PostgresStore

        dsn = shared_server().new_schema() + "%20-cidle_session_timeout%3D1000"
        with closing(PostgresStore(dsn, "sync")) as store:
            found = store.connection.execute("SELECT current_setting('idle_session_timeout')")
            assert found.fetchone() == ("0",)

    def test_whose_tables_were_removed_is_not_called_a_defect(self) -> None:
        from reliable_pubsub.proxy.postgres_store import PostgresStore

        with closing(PostgresStore(shared_server().new_schema(), "sync")) as store:
            store.connection.execute("DROP TABLE topic")
            with pytest.raises(
                StorageFailedError, match="tables of this database have been changed"
            ):
                store.commit(a_beginning())

    def test_without_space_keeps_nothing_of_a_commit_and_takes_the_next_one(self) -> None:
        from reliable_pubsub.proxy.postgres_store import PostgresStore

        dsn = shared_server().new_schema()
        with closing(PostgresStore(dsn, "sync")) as store:
            execute = store.connection.execute
            store.commit(a_beginning())
            execute(
                "CREATE FUNCTION is_full() RETURNS trigger LANGUAGE plpgsql AS "
                "'BEGIN RAISE EXCEPTION USING ERRCODE = ''disk_full''; END'"
            )
            execute(
                "CREATE TRIGGER full_disk BEFORE INSERT ON publisher EXECUTE FUNCTION is_full()"
            )

            with pytest.raises(StorageFullError) as found:
                store.commit([an_append(0)])
            assert found.value.why == "the disk of the database is full"
            assert check_store(store.connection).messages == 0

            execute("DROP TRIGGER full_disk ON publisher")
            store.commit([an_append(0)])
            assert check_store(store.connection).messages == 1

    def test_is_shown_without_its_password(self) -> None:
        from reliable_pubsub.proxy.postgres_connection import dsn_without_password

        assert dsn_without_password("postgresql://me:secret@a,b:5433/log?sslmode=require") == (
            "postgresql://a,b:5433/log"
        )

    def test_is_named_by_a_connection_string(self) -> None:
        from reliable_pubsub.proxy.postgres_store import PostgresStore

        for wrong in ("postgresql://x y/?a=b", "postgresql://127.0.0.1/?connect_timeout=soon"):
            with pytest.raises(ConfigurationError, match="not a connection string"):
                PostgresStore(wrong, "sync", pause=_no_wait)

    def test_gives_a_long_log_bit_by_bit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from reliable_pubsub.proxy import postgres_connection
        from reliable_pubsub.proxy.log_reader import StoreReader
        from reliable_pubsub.proxy.postgres_store import PostgresStore

        monkeypatch.setattr(postgres_connection, "ROWS_AT_ONCE", 16)
        batches = [an_append(base) for base in range(2 * postgres_connection.BODIES_AT_ONCE)]
        with closing(PostgresStore(shared_server().new_schema(), "sync")) as store:
            store.commit([*a_beginning(), *batches])

            assert check_store(store.connection).messages == len(batches)
            with closing(StoreReader(store.open_reader(), cache_bytes_max=0)) as reader:
                read = reader.read(1, 0, messages_max=len(batches), bytes_max=1 << 20)
                assert list(read) == batches


@needs_postgresql
class TestTakingOver:
    """The order of a topic is judged by sums that the server makes."""

    @pytest.fixture
    def store(self) -> Iterator[PostgresStore]:
        from reliable_pubsub.proxy.postgres_store import PostgresStore

        with closing(PostgresStore(shared_server().new_schema(), "sync")) as store:
            store.commit([*a_beginning(), *(an_append(base) for base in range(100))])
            yield store

    def test_reads_no_row_of_a_sound_topic(
        self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(check, "_check_topic", lambda *_, **__: pytest.fail("rows are read"))

        assert check_store(store.connection).messages == 100

    def test_finds_the_segments_that_reading_every_row_finds(
        self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        summed = check_store(store.connection)
        monkeypatch.setattr(check, "_summed_topic", lambda *_: None)

        assert check_store(store.connection) == summed
        assert summed.messages == 100

    @pytest.mark.parametrize(
        ("damage", "offsets"),
        [
            ("DELETE FROM batch WHERE base = 50", "50 to 50"),
            ("DELETE FROM batch WHERE base < 7", "0 to 6"),
            ("DELETE FROM batch WHERE base > 97", "98 to 99"),
            ("UPDATE batch SET count = 2 WHERE base = 50", "50 to 50"),
            ("UPDATE batch SET count = 2 WHERE base = 99", "99 to 99"),
            ("UPDATE batch SET timestamp_ns = 1 WHERE base = 50", "50 to 50"),
            ("UPDATE batch SET place = place + 5000 WHERE base = 50", "50 to 50"),
        ],
    )
    def test_names_the_offsets_of_damage(
        self, store: PostgresStore, damage: str, offsets: str
    ) -> None:
        store.connection.opened.execute(damage.encode())

        with pytest.raises(DamagedError, match=f"offsets {offsets}"):
            check_store(store.connection)


class TestAStatement:
    def test_for_many_rows_has_one_text_however_many_they_are(self) -> None:
        topics = {1: ("t", "log")}
        few, more = (
            [in_columns(*one) for one in statements([an_append(n) for n in range(rows)], topics)]
            for rows in (2, 30)
        )

        assert [text for text, _ in few] == [text for text, _ in more]
        assert all(text.count(b"%s") == len(values) for text, values in few)
