"""What the page requests besides its polling: messages, dead letters, actions. Blocking.

Each sort of call has its own client, and calls of that sort wait for each other.
"""

from __future__ import annotations

import secrets
import threading
from typing import Final

from msgspec import UNSET, Struct

from reliable_pubsub.common.admin_client import Admin, AdminOutcome
from reliable_pubsub.common.asking import Asker
from reliable_pubsub.common.core.batch import Message, StoredBatch, messages_in
from reliable_pubsub.common.core.dead_letter import dead_topic
from reliable_pubsub.common.core.errors import (
    DeniedError,
    FencedError,
    InDoubtError,
    NotPossibleError,
    ProxyUnreachableError,
    TruncatedError,
    TryLaterError,
)
from reliable_pubsub.common.core.message_base import BatchHeader, Start
from reliable_pubsub.common.core.names import ExactTopic
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.core.session import refusal
from reliable_pubsub.common.core.start import Earliest, at_offset, at_time, parse_start
from reliable_pubsub.common.core.status import Clients, ClientsReport, ClientStatus
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.subscriber.reader import LogReader

from .core.actions import AskedAction
from .core.letters import LetterRow, again, letter_of, publisher_of, publishers_from, row_of_letter

LIST_MAX: Final = 50  # messages of a list
CLIENTS_MAX: Final = 100  # of a list
READ_BYTES: Final = 262_144  # of one reading; at least a batch is read
SEARCHED_MAX: Final = 20_000  # messages in one search for a key
LETTERS_SEARCHED_MAX: Final = 2_000  # for the letter of one message


class Listed(Struct, frozen=True, kw_only=True):
    """Messages of a topic from a place on."""

    messages: tuple[Message, ...]
    first: int  # offset at which the reading began
    next: int  # offset after all that was read
    is_end: bool  # nothing follows, for now


class ConsoleClients:
    """The clients of one console."""

    def __init__(self, subscribers: str, publishers: str, retry: RetryPolicy) -> None:
        """Create the clients; nothing is asked before a call.

        Args:
            subscribers, publishers: the two endpoints, with their keys.
        """
        self._reader = LogReader(subscribers, retry=retry)
        self._admin = Admin(endpoint=subscribers, retry=retry, allow_plaintext=True)
        self._asker = Asker(
            f"admin-{secrets.token_hex(4)}", subscribers, retry=retry, role="subscriber"
        )
        self._publishers = publishers
        self._retry = retry
        self._reading, self._acting, self._asking = (threading.Lock() for _ in range(3))
        self._putting = threading.Lock()

    def close(self) -> None:
        """Close the sockets, after the calls that run."""
        with self._reading, self._acting, self._asking, self._putting:
            self._reader.close()
            self._admin.close()
            self._asker.close()

    # Messages.

    def messages(self, topic: str, place: str, key: bytes | None = None) -> Listed:
        """Messages from a place on: all, or those with a key.

        Args:
            place: as `parse_start` reads it; one that is no longer stored is the earliest.

        Raises:
            UsageError: it is no place. PubSubError: as of `LogReader.read`.
        """
        found: list[Message] = []
        first: int | None = None
        at, searched = parse_start(place), 0
        while True:
            batches = self._read(topic, at)
            messages = messages_in(topic, batches)
            first = messages[0].offset if first is None and messages else first
            end = batches[-1].end if batches else (at.value if at.at == "offset" else 0)
            for one in messages:
                searched += 1
                if key is not None and one.key != key:
                    continue
                found.append(one)
                if len(found) == LIST_MAX:
                    return _listed(found, first, one.offset + 1, is_end=False)
            if not batches or searched >= SEARCHED_MAX:
                return _listed(found, first, end, is_end=not batches)
            at = at_offset(end)

    def message(self, topic: str, offset: int) -> tuple[Message, BatchHeader]:
        """One message, with its batch.

        Raises:
            NotPossibleError: there is none at that offset. PubSubError: as `LogReader.read`.
        """
        batches = self._read_at(topic, offset)
        if not batches:
            raise NotPossibleError(f"topic {topic!r} has no message at offset {offset:,} yet")
        return messages_in(topic, batches)[0], batches[0].header

    def letter_of(self, message: Message, log: str) -> tuple[tuple[Message, bool], ...]:
        """The dead letter of a message, and whether it was put again; none, if it may not be read.

        Args:
            log: log id of the topic of dead letters.
        """
        dead = dead_topic(message.topic)
        if dead is None:
            return ()
        try:
            at, searched = at_time(message.timestamp_ns), 0
            while searched < LETTERS_SEARCHED_MAX:
                batches = self._read(dead, at)
                messages = messages_in(dead, batches)
                if letter := letter_of(messages, message.offset):
                    done = self._put_again(log, letter.offset, letter.offset)
                    return ((letter, publisher_of(log, letter.offset) in done),)
                if not batches:
                    return ()
                searched += len(messages)
                at = at_offset(batches[-1].end)
        except (DeniedError, TruncatedError):
            return ()
        return ()

    # Dead letters.

    def letters(self, topic: str, place: str, log: str) -> tuple[Listed, tuple[LetterRow, ...]]:
        """Dead letters from a place on.

        Args:
            log: log id of the topic.
        """
        listed = self.messages(topic, place)
        offsets = [one.offset for one in listed.messages]
        done = self._put_again(log, offsets[0], offsets[-1]) if offsets else frozenset()
        return listed, tuple(row_of_letter(one, log, done) for one in listed.messages)

    def put_again(self, topic: str, offset: int, log: str) -> bool:
        """Put a dead letter again, once however often it is asked for.

        Args:
            log: log id of the topic of dead letters, as it was shown.

        Returns:
            Whether it was put now; False: it was before.

        Raises:
            NotPossibleError: it has no payload, or puts are refused now. InDoubtError: ask again,
                it is stored once.
            PubSubError: as of `LogReader.read` and `Publisher.put`.
        """
        with self._reading:
            batches = self._reader.read(topic, offset, log=log, messages_max=1, bytes_max=0)
        if not batches:
            raise NotPossibleError(f"topic {topic!r} has no dead letter at offset {offset:,}")
        what = again(messages_in(topic, batches)[0], log)
        to = ExactTopic(what.topic)
        with (
            self._putting,
            Publisher(
                what.publisher, endpoint=self._publishers, retry=self._retry, allow_plaintext=True
            ) as publisher,
        ):
            try:
                if publisher.ready_for(to) > 1:
                    return False
                publisher.put(
                    to,
                    what.payload,
                    key=what.key,
                    headers=what.headers,
                    event_time_ns=what.event_time_ns,
                )
            except ProxyUnreachableError as error:
                raise InDoubtError(
                    f"no answer: it is not known whether dead letter {offset:,} was put again. "
                    "Ask again: it is stored once"
                ) from error
            except TryLaterError as error:
                raise NotPossibleError(
                    f"dead letter {offset:,} was not put again: {error.why}"
                ) from error
            except FencedError as error:
                raise NotPossibleError(
                    f"another console puts dead letter {offset:,} again at this moment: look again"
                ) from error
        return True

    def _put_again(self, log: str, first: int, last: int) -> frozenset[str]:
        """The publishers of letters that have put theirs; none, if the key may not ask."""
        after, end = publishers_from(log, first), publisher_of(log, last)
        found: set[str] = set()
        while after and after < end:
            try:
                rows, after = self.clients(after)
            except DeniedError:
                return frozenset()
            found |= {one.client for one in rows if one.numbered}
        return frozenset(found)

    # Clients and actions.

    def clients(self, after: str) -> tuple[tuple[ClientStatus, ...], str]:
        """The ids after this one, and where the next page begins; "": there is none."""
        with self._asking:
            request = Clients(**self._asker.head(), after_client=after, clients_max=CLIENTS_MAX)
            reply, _ = self._asker.ask(request)
        if not isinstance(reply, ClientsReport):
            raise refusal(reply, client=request.client, epoch=0)
        return reply.clients, "" if reply.next_client is UNSET else reply.next_client

    def act(self, asked: AskedAction, *, look: bool) -> AdminOutcome:
        """Do an action, or look at what it would do.

        Raises:
            UsageError: a name or place is none. PubSubError: as of `Admin`.
        """
        with self._acting:
            return _acted(self._admin, asked, look)

    # Reading.

    def _read(self, topic: str, at: Start) -> list[StoredBatch]:
        try:
            with self._reading:
                return self._reader.read(topic, at, messages_max=LIST_MAX, bytes_max=READ_BYTES)
        except TruncatedError:
            with self._reading:
                return self._reader.read(
                    topic, Earliest, messages_max=LIST_MAX, bytes_max=READ_BYTES
                )

    def _read_at(self, topic: str, offset: int) -> list[StoredBatch]:
        with self._reading:
            return self._reader.read(topic, offset, messages_max=1, bytes_max=0)


def _listed(found: list[Message], first: int | None, end: int, *, is_end: bool) -> Listed:
    return Listed(
        messages=tuple(found), first=end if first is None else first, next=end, is_end=is_end
    )


def _acted(admin: Admin, asked: AskedAction, look: bool) -> AdminOutcome:
    topic, subscriber = asked.topic, asked.subscriber
    match asked.action:
        case "end_subscription":
            return admin.end_subscription(topic, subscriber, look=look)
        case "skip":
            return admin.skip(topic, subscriber, end=asked.end, look=look)
        case "set_cursor":
            return admin.set_cursor(topic, subscriber, parse_start(asked.start), look=look)
        case "truncate":
            return admin.truncate(topic, parse_start(asked.start), look=look)
        case "delete_topic":
            return admin.delete_topic(topic, look=look)
        case "forget_client":
            return admin.forget_client(asked.client, role=asked.role, look=look)
        case "pause":
            return _NOT_DONE if look else admin.pause(asked.reason)
        case "resume":
            return _NOT_DONE if look else admin.resume()


_NOT_DONE: Final = AdminOutcome(number=0, done=False, already=False)
