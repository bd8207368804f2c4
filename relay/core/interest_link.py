"""Interest as a versioned set: sent until it is acknowledged, and again when in doubt. Pure.

The node below (`Wish`) has a set and a version. It says the whole set until the node above has
that version, and then, three times in a lease, only the digest. The node above (`Links`) keeps the
newest version of each link, and asks for the set when a digest is not its own. Nothing else is
remembered, so losses, copies and another order of the messages change nothing in the end, and a
node above that has restarted, or was away, is told again by the next digest.

What is under way to one node above is one message, whatever happens meanwhile: a newer set takes
the place of an older one that waits. A hung node above costs that, and affects no other peer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Sequence
from typing import Any, Final

import msgspec

from reliable_pubsub.common.core.answers import Limit, Malformed
from reliable_pubsub.common.core.errors import InvalidPatternError
from reliable_pubsub.common.core.limits import (
    CONSUMERS_MAX,
    INTEREST_STEPS_MAX,
    INTEREST_TURN_STEPS,
    PATTERN_STEPS_MAX,
    REASON_CHARS_MAX,
    RELAYS_BELOW_MAX,
)
from reliable_pubsub.common.core.message_base import Reply
from reliable_pubsub.common.core.patterns.matching import Kinds, Pattern, is_simple
from reliable_pubsub.common.core.settings import RELAY_LEASE_S
from reliable_pubsub.common.core.tree_messages import (
    BelowStatus,
    InterestAck,
    InterestRequest,
    Loop,
)

from .interest_table import CAP, InterestTable

RESEND_S: Final = 0.5  # before an unanswered set is sent again; doubles
RESEND_S_MAX: Final = 5.0
LEASE_S: Final = RELAY_LEASE_S
WANTS_SHOWN: Final = 3  # patterns of one link in a report
WANT_CHARS: Final = 40  # of each
_APPLIED_S: Final = 0.01  # what the data socket says takes another way; it needs about so long
CHANGE_S: Final = 0.01  # between two sets of one link: what changes meanwhile goes with the next
_REFUSED_S: Final = 30.0  # before a refused set is sent again: the tree may have changed

_encoder = msgspec.msgpack.Encoder()


def interest_digest(patterns: Iterable[Pattern], below: Iterable[str]) -> bytes:
    """SHA-256 of a set: its patterns and the relays below, sorted, as msgpack."""
    return hashlib.sha256(_encoder.encode([sorted(patterns), sorted(below)])).digest()


class Wish:
    """The lower end of one link: what we want, and what the node above knows of it."""

    def __init__(self, *, client: str, link: bytes) -> None:
        """Nothing is wanted, and nothing was said.

        Args:
            client: our name.
            link: random, of this link alone, 16 bytes.
        """
        self.link = link
        self.refused: str = ""  # why the node above refuses, in words
        self.acknowledged = 0  # version that the node above has
        self.applied = 0  # version by which it sends data
        self.push_endpoint: str | None = None  # known from its first answer
        self.is_full = False  # it sends everything, because our set is above its cap
        self.unknown_kinds: tuple[str, ...] = ()  # it sends everything because of these
        self.sent_count = 0
        self.patterns: frozenset[Pattern] = frozenset()  # what we want
        self._client = client
        self._version = 1
        self._below: frozenset[str] = frozenset()
        self._digest = interest_digest((), ())
        self._set_wanted = True
        self._request = 0
        self._under_way = False
        self._unanswered = 0
        self._due_at_s = 0.0
        self._set_at_s = float("-inf")  # when the set was said last
        self._lease_s = LEASE_S

    def want(self, patterns: frozenset[Pattern], below: frozenset[str] = frozenset()) -> None:
        """Want these from now on.

        Args:
            below: relays whose interest is in it, ourselves included.
        """
        if (patterns, below) == (self.patterns, self._below):
            return
        self.patterns, self._below = patterns, below
        self._version += 1
        self._digest = interest_digest(patterns, below)
        self._set_wanted = True
        self.refused = ""
        if not self._under_way:
            self._due_at_s = self._set_at_s + CHANGE_S

    @property
    def settled(self) -> bool:
        """Whether the node above has the newest version and sends data by it."""
        return self.acknowledged == self.applied == self._version and not self._set_wanted

    @property
    def why_down(self) -> str:
        """Return why the node above does not serve this link, as far as is known; "": it does."""
        if self.refused:
            return f"it refuses the link: {self.refused}"
        if self.push_endpoint is None:
            return "no answer yet"
        return "it does not answer" if self._unanswered else ""

    def due_in_s(self, now_s: float) -> float:
        """Seconds until there is something to say."""
        return max(self._due_at_s - now_s, 0.0)

    def message(self, now_s: float) -> InterestRequest | None:
        """What is to be said now, if anything; it then counts as under way."""
        if now_s < self._due_at_s:
            return None
        if self._under_way:
            self._unanswered += 1
        self._under_way = True
        self._due_at_s = now_s + min(RESEND_S * 2.0 ** min(self._unanswered, 10), RESEND_S_MAX)
        self._request += 1
        self.sent_count += 1
        if self._set_wanted:
            self._set_at_s = now_s
        return InterestRequest(
            client=self._client,
            epoch=0,
            request=self._request,
            link=self.link,
            version=self._version,
            digest=self._digest,
            patterns=tuple(sorted(self.patterns)) if self._set_wanted else None,
            below=tuple(sorted(self._below)) if self._set_wanted else (),
        )

    def answered(self, reply: Reply, now_s: float) -> None:
        """Take an answer; an older one than the newest message has no effect."""
        # Who cannot read us answers without an echo: a node that knows nothing of interest.
        unread = isinstance(reply, Malformed) and reply.request == 0
        if not self._under_way or not (unread or reply.request == self._request):
            return
        self._under_way = False
        self._unanswered = 0
        if not isinstance(reply, InterestAck):
            text = str(getattr(reply, "text", type(reply).__name__))
            self.refused = text[:REASON_CHARS_MAX]
            self._set_wanted = True
            self._due_at_s = now_s + _REFUSED_S
            return
        self.refused = ""
        self.acknowledged, self.applied = reply.version, reply.applied
        self.push_endpoint = reply.push_endpoint
        self.is_full, self.unknown_kinds = reply.is_full, reply.unknown_kinds
        self._lease_s = reply.lease_s
        self._set_wanted = reply.wanted or reply.version != self._version
        if self._set_wanted:
            self._due_at_s = max(now_s, self._set_at_s + CHANGE_S)
        else:
            self._due_at_s = now_s + self._pause_s()

    def ask_soon(self, now_s: float) -> None:
        """Ask soon whether data is sent by the set: there is a reason to hope or to doubt it."""
        if not self._under_way:
            self._due_at_s = min(self._due_at_s, now_s + _APPLIED_S)

    def _pause_s(self) -> float:
        return self._lease_s / 3 if self.settled else min(RESEND_S, self._lease_s / 3)


class _Link:
    __slots__ = ("applied", "below", "client", "digest", "expires_at_s", "key", "version")

    def __init__(self, key: str = "") -> None:
        self.key = key
        self.client = ""
        self.version = 0
        self.digest = b""
        self.below: tuple[str, ...] = ()
        self.applied = 0
        self.expires_at_s = 0.0


class Links:
    """The upper ends of all links of one node: the newest set of each, and its lease."""

    def __init__(
        self,
        table: InterestTable[bytes],
        *,
        node: str,
        kinds: Kinds,
        push_endpoint: str,
        boot: str,
        lease_s: float = LEASE_S,
    ) -> None:
        """Create it without links.

        Args:
            table: gets what each link wants.
            node: our name; interest that carries it has gone round.
        """
        self._table = table
        self._node = node
        self._kinds = kinds
        self._push_endpoint = push_endpoint
        self._boot = boot
        self._lease_s = lease_s
        self._links: dict[bytes, _Link] = {}
        self._gone: list[bytes] = []  # forgotten, and not reported yet
        self._steps_left = INTEREST_TURN_STEPS  # of reading; below 0, turns to come pay
        self.below = frozenset({node})  # ourselves, and every relay whose interest came to us

    def take(
        self, said: InterestRequest, now_s: float, *, key: str = "", may_get_all: bool = True
    ) -> Reply:
        """Take a set or a digest; answer with what is known of the link then.

        Args:
            key: public key of the connection; a link belongs to the key that it came with.
            may_get_all: whether it may be sent more than it asks for, where that costs less.
        """
        if self._node in said.below:
            text = f"relay {self._node!r} is below {said.client!r}; data would circulate forever: "
            text += "connect it to a node that is not below it"
            return Loop(**self._echo(said), text=text)
        if said.link not in self._links and len(self._links) >= CONSUMERS_MAX:
            text = f"{len(self._links):,} links are known here, the most that may be"
            return Limit(**self._echo(said), text=text, limit=CONSUMERS_MAX)
        if len(self.below.union(said.below)) > RELAYS_BELOW_MAX:
            text = f"there would be more than {RELAYS_BELOW_MAX} relays below {self._node!r}"
            return Limit(**self._echo(said), text=text, limit=RELAYS_BELOW_MAX)
        known = self._links.get(said.link)
        if known is not None and known.key != key:
            text = "this link was made with another key; make a link of your own"
            return Malformed(**self._echo(said), text=text)
        is_new = known is None or said.version > known.version
        if said.patterns is not None and is_new and self._may_read(said.patterns):
            try:
                known = self._new_set(said, said.patterns, key)
            except InvalidPatternError as error:
                self._steps_left -= PATTERN_STEPS_MAX  # it may have taken so many to find out
                return Malformed(**self._echo(said), text=str(error))
            if not may_get_all and self._table.is_full(said.link):
                self._forget([said.link])
                text = "these are more patterns than can be told apart for one link, and its key "
                text += "may not be sent every topic: want fewer, or poll"
                return Limit(**self._echo(said), text=text, limit=CAP)
        if known is None:
            return self._ack(said, _Link())
        known.expires_at_s = now_s + self._lease_s
        return self._ack(said, known)

    def new_turn(self) -> None:
        """A turn of the loop begins: some more may be read."""
        self._steps_left = min(self._steps_left + INTEREST_TURN_STEPS, INTEREST_TURN_STEPS)

    def _may_read(self, patterns: tuple[Pattern, ...]) -> bool:
        """Whether there is time for a set; if not, the link sends it again soon (`wanted`)."""
        return self._steps_left > 0 or all(map(is_simple, patterns))

    def _new_set(self, said: InterestRequest, patterns: tuple[Pattern, ...], key: str) -> _Link:
        checked, steps = [], 0
        for pattern in patterns:
            if steps > INTEREST_STEPS_MAX:
                break  # the rest is not read: it gets everything
            checked.append(self._kinds.check(pattern))
            cost = self._kinds.cost(checked[-1])[0]
            steps += cost
            self._steps_left -= cost
        known = self._links.setdefault(said.link, _Link(key))
        known.client, known.below = said.client, said.below
        known.version, known.digest = said.version, interest_digest(patterns, said.below)
        self._table.replace(said.link, checked, is_costly=steps > INTEREST_STEPS_MAX)
        self._count_below()
        return known

    def _count_below(self) -> None:
        below = (known.below for known in self._links.values() if known.below)
        self.below = frozenset({self._node}.union(*below))

    def applied(self, link: bytes, key: str = "") -> frozenset[Pattern]:
        """The data socket of a link has sent its name: return what it is to be sent."""
        known = self._links.get(link)
        if known is None or known.key != key:
            return frozenset()
        known.applied = known.version
        return self._table.patterns_of(link)

    def misplaced(self, link: bytes) -> None:
        """The data socket of a link is not known after all: it has to send its name again."""
        if link in self._links:
            self._links[link].applied = 0

    def expire(self, now_s: float) -> list[bytes]:
        """Forget the links whose lease is over; return all forgotten since the last call."""
        gone = [link for link, known in self._links.items() if known.expires_at_s <= now_s]
        self._forget(gone)
        gone, self._gone = self._gone, []
        return gone

    def revoke(self, keys: Container[str]) -> None:
        """Forget the links of these keys at once."""
        self._forget([link for link, known in self._links.items() if known.key in keys])

    def _forget(self, gone: Sequence[bytes]) -> None:
        for link in gone:
            del self._links[link]
            self._table.forget(link)
        self._gone += gone
        if gone:
            self._count_below()

    def __len__(self) -> int:
        """How many links there are."""
        return len(self._links)

    def report(self) -> tuple[BelowStatus, ...]:
        """Each link, in the order of the names at their lower ends."""
        return tuple(
            BelowStatus(
                client=known.client,
                patterns=len(self._table.patterns_of(link)),
                is_full=self._table.is_full(link),
                is_relay=known.client in known.below,
                wants=_in_words(self._table.patterns_of(link)),
            )
            for link, known in sorted(self._links.items(), key=lambda one: one[1].client)
        )

    def _echo(self, said: InterestRequest) -> dict[str, Any]:
        return {
            "client": said.client,
            "epoch": said.epoch,
            "request": said.request,
            "boot": self._boot,
        }

    def _ack(self, said: InterestRequest, known: _Link) -> InterestAck:
        return InterestAck(
            **self._echo(said),
            version=known.version,
            wanted=(known.version, known.digest) != (said.version, said.digest),
            applied=known.applied,
            lease_s=self._lease_s,
            push_endpoint=self._push_endpoint,
            is_full=self._table.is_full(said.link),
            unknown_kinds=self._kinds.unknown(self._table.patterns_of(said.link)),
        )


def _in_words(patterns: Iterable[Pattern]) -> tuple[str, ...]:
    """Some patterns, short enough for a report of many links."""
    first = sorted(patterns)[:WANTS_SHOWN]
    return tuple(
        f"{one.text:.{WANT_CHARS}}"
        if one.kind == "exact"
        else f"{one.kind} {one.text:.{WANT_CHARS}}"
        for one in first
    )
