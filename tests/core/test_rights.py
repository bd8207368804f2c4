"""What a key may do: each verb needs an id of the key and a right; a refusal changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from reliable_pubsub.common.access.core.needs import NEEDS
from reliable_pubsub.common.core.actions import (
    AdminRequest,
    DeleteTopic,
    EndSubscription,
    Pause,
    Truncate,
)
from reliable_pubsub.common.core.answers import Denied
from reliable_pubsub.common.core.answers import Limit as LimitAnswer
from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.group_messages import Outcome, Settle, Take
from reliable_pubsub.common.core.interest_messages import Subscriptions
from reliable_pubsub.common.core.message_base import GroupTerms, Reply, Start
from reliable_pubsub.common.core.pattern_messages import Fetch, Match
from reliable_pubsub.common.core.patterns.matching import EVERYTHING, Pattern
from reliable_pubsub.common.core.qos0_messages import Listeners, Ring
from reliable_pubsub.common.core.requests import Dead, DeliveryRequest
from reliable_pubsub.common.core.status import Clients, Status, StatusReport
from reliable_pubsub.common.core.tree_messages import InterestAck, InterestRequest, Node, NodeReport
from reliable_pubsub.proxy.features import TABLES
from reliable_pubsub.proxy.push.pushes import Pushes
from reliable_pubsub.proxy.qos0.verbs import offered
from reliable_pubsub.relay.core.interest_link import interest_digest
from reliable_pubsub.relay.core.unstored import Offer, encode_offer
from tests.core.rights_world import GovernedProxy, Said, authority, key_of
from tests.fakes import (
    NONCE,
    a_body,
    a_bye,
    a_commit,
    a_get,
    a_hello,
    a_history,
    a_put,
    a_stage,
    a_sub,
    an_abort,
    an_ack,
    an_action,
    an_unsub,
    put_body,
)

ALL: Said = {
    "ids": ["*"],
    **{right: ["*"] for right in ("put", "get", "history", "dead_letters", "status", "admin")},
}
LIMITED: Said = {"ids": ["s"], "get": ["a.*", "b"], "dead_letters": ["a.*"]}
RELAY: Said = ALL | {"relay": True}
LINK = b"link-of-a-test--"
BODY = a_body(b"letter")


def an_interest(*patterns: Pattern, version: int = 1, client: str = "s") -> InterestRequest:
    return InterestRequest(
        client=client,
        epoch=0,
        request=1,
        link=LINK,
        version=version,
        digest=interest_digest(patterns, ()),
        patterns=patterns,
    )


def exact(*topics: str) -> tuple[Pattern, ...]:
    return tuple(Pattern("exact", topic) for topic in topics)


class Example(Struct, frozen=True):
    """A request, its body, and what it needs beside an id."""

    request: Any
    needs: Mapping[str, str] = {}
    body: bytes | None = None


HEAD: dict[str, Any] = {"client": "s", "epoch": 1, "request": 1}
PLACE: dict[str, Any] = {**HEAD, "topic": "t", "generation": 1, "boot": "boot-1"}
GROUP: dict[str, Any] = {**HEAD, "topic": "t", "group": "g", "generation": 1}
EXAMPLES = (
    Example(a_hello("publisher", "s", epoch=2, topics=("t",)), {"put": "t"}),
    Example(a_put(1, client="s"), {"put": "t"}, put_body(1)),
    Example(a_stage(1, client="s"), {"put": "t"}, put_body(1)),
    Example(a_commit(1, client="s")),
    Example(an_abort(1, client="s")),
    Example(DeliveryRequest(**HEAD, topic="t", offset=0), {"put": "t"}),
    Example(Listeners(**HEAD, topic="t"), {"put": "t"}),
    Example(Subscriptions(**HEAD, match=Pattern("exact", "t")), {"put": "t"}),
    Example(Subscriptions(**HEAD, match=Pattern("prefix", "t")), {"put": ""}),
    Example(a_sub(), {"get": "t"}),
    Example(a_get(0), {"get": "t"}),
    Example(an_ack(0), {"get": "t"}),
    Example(Dead(**PLACE, cursor=0, crc=crc32(BODY)), {"get": "t", "dead_letters": "t.dead"}, BODY),
    Example(
        Settle(**GROUP, outcomes=(Outcome(0, 1, 1, "reject", reason="poison"),)),
        {"get": "t", "dead_letters": "t.dead"},
    ),
    Example(Take(**GROUP), {"get": "t"}),
    Example(Match(**HEAD, match=Pattern("exact", "t"), control=1), {"get": ""}),
    Example(Fetch(**HEAD, match=Pattern("exact", "t"), boot="boot-1"), {"get": ""}),
    Example(
        replace(a_sub(), group="g", group_terms=GroupTerms(max_deliveries=2)),
        {"get": "t", "dead_letters": "t.dead"},
    ),
    Example(an_unsub(2)),
    Example(replace(an_unsub(2), group="g"), {"get": "t"}),
    Example(a_bye()),
    Example(Ring(**PLACE, place=0), {"get": "t"}),
    Example(replace(a_history(0), client="s"), {"history": "t"}),
    Example(Status(**HEAD), {"status": ""}),
    Example(Clients(**HEAD), {"admin": ""}),
    Example(AdminRequest(**HEAD, do=Truncate(topic="t", start=Start("now"))), {"admin": "t"}),
    Example(AdminRequest(**HEAD, do=DeleteTopic(topic="t")), {"admin": "t"}),
    Example(
        AdminRequest(**HEAD, do=EndSubscription(topic="t", subscriber="group:g")), {"admin": "t"}
    ),
    Example(an_interest(*exact("t")), {"get": "t"}),
    Example(Node(**HEAD), {"status": ""}),
)


def verb_of(example: Example) -> str:
    return str(example.request.__struct_config__.tag)


def asked(example: Example, rights: Said) -> tuple[Reply | None, GovernedProxy]:
    """What a key with these rights is answered; the topic and a session exist."""
    proxy = GovernedProxy(sensor=rights, other=ALL)
    for role in ("publisher", "subscriber"):
        proxy.ask_as("other", a_hello(role, "s"))
    proxy.ask_as("other", a_put(1, client="other"), put_body(1))
    return proxy.ask_as("sensor", example.request, example.body), proxy


def test_every_verb_of_proxy_and_tree_says_what_it_needs() -> None:
    assert NEEDS.keys() == {*TABLES.verbs, InterestRequest, Node}


def test_every_verb_has_an_example_here() -> None:
    assert {type(one.request) for one in EXAMPLES} == NEEDS.keys()


@pytest.mark.parametrize("example", EXAMPLES, ids=verb_of)
class TestEachVerb:
    def test_is_heard_with_its_rights_and_no_others(self, example: Example) -> None:
        needed = {right: [topic or "*"] for right, topic in example.needs.items()}

        reply, proxy = asked(example, {"ids": ["s"], **needed})

        assert not isinstance(reply, Denied)
        assert proxy.denials == []

    def test_is_denied_under_an_id_of_another_key(self, example: Example) -> None:
        reply, _ = asked(example, {**ALL, "ids": ["sensor-*"]})

        assert isinstance(reply, Denied)
        assert (reply.right, reply.client) == ("id", "s")

    def test_is_denied_if_one_right_is_missing(self, example: Example) -> None:
        for right, topic in example.needs.items():
            reply, proxy = asked(example, {**ALL, right: ["another", "another.*"] if topic else []})

            assert isinstance(reply, Denied)
            assert (reply.right, reply.topic) == (right, topic)
            assert f"{verb_of(example)}: the key 'sensor' may not" in reply.text
            (denial,) = proxy.denials
            assert (denial.verb, denial.name) == (verb_of(example), "sensor")

    def test_that_is_denied_changes_nothing(self, example: Example) -> None:
        proxy = GovernedProxy(sensor={}, other=ALL)
        proxy.ask_as("other", a_hello("subscriber", "s"))
        proxy.ask_as("other", a_sub())
        before = (proxy.state.lsn, len(proxy.state.topics), len(proxy.state.kept(Pushes).links))
        heard_s = dict(proxy.state.leases.heard_s)
        proxy.now_s = 5.0

        assert isinstance(proxy.ask_as("sensor", example.request, example.body), Denied)
        assert before == (
            proxy.state.lsn,
            len(proxy.state.topics),
            len(proxy.state.kept(Pushes).links),
        )
        assert proxy.state.leases.heard_s == heard_s

    def test_is_denied_to_every_key_where_no_rights_are_said(self, example: Example) -> None:
        proxy = GovernedProxy(sensor=None, other=None)

        assert isinstance(proxy.ask_as("sensor", example.request, example.body), Denied)

    def test_is_heard_where_no_keys_are_known(self, example: Example) -> None:
        assert not isinstance(GovernedProxy().ask_as("", example.request, example.body), Denied)


class TestAKey:
    def test_may_use_its_name_as_its_id_if_nothing_else_is_said(self) -> None:
        proxy = GovernedProxy(sensor_1={"put": ["*"]})

        assert not isinstance(proxy.ask_as("sensor-1", a_hello("publisher", "sensor-1")), Denied)
        assert isinstance(proxy.ask_as("sensor-1", a_hello("publisher", "sensor-2")), Denied)

    def test_whose_name_looks_like_a_pattern_has_one_id(self) -> None:
        proxy = GovernedProxy(**{"*": {"put": ["*"]}})

        assert isinstance(proxy.ask_as("*", a_hello("publisher", "sensor-2")), Denied)

    def test_without_an_entry_may_do_nothing_where_others_have_one(self) -> None:
        proxy = GovernedProxy(sensor={"put": ["*"]})

        reply = proxy.ask_as("unknown", Status(client="status-0123abcd", epoch=0, request=1))

        assert isinstance(reply, Denied)

    def test_reads_under_the_random_id_of_a_command_but_acts_under_its_own(self) -> None:
        proxy = GovernedProxy(sensor=ALL | {"ids": []})
        passing = "reader-0123abcd"

        assert not isinstance(proxy.ask_as("sensor", replace(a_history(0), client=passing)), Denied)
        assert isinstance(proxy.ask_as("sensor", a_hello("subscriber", passing)), Denied)

    def test_that_may_get_all_topics_may_not_read_dead_letters(self) -> None:
        proxy = GovernedProxy(sensor={"ids": ["*"], "get": ["*"], "history": ["*"]})

        for request in (a_sub(topic="t.dead"), a_history(0, topic="t.dead")):
            reply = proxy.ask_as("sensor", request)
            assert isinstance(reply, Denied)
            assert (reply.right, reply.topic) == ("dead_letters", "t.dead")

    @pytest.mark.parametrize("topic", ["readings", "reading", "xreadings.a", "readings/a", "t"])
    def test_is_held_to_its_patterns(self, topic: str) -> None:
        proxy = GovernedProxy(sensor={"ids": ["p"], "put": ["readings.*", "r?ck"]})

        assert isinstance(proxy.ask_as("sensor", a_put(1, topic=topic), put_body(1)), Denied)
        for allowed in ("readings.a", "rock"):
            reply = proxy.ask_as("sensor", a_put(1, topic=allowed), put_body(1))
            assert not isinstance(reply, Denied)

    @pytest.mark.parametrize(
        ("role", "request_"),
        [("subscriber", a_put(1, client="victim")), ("publisher", a_sub(client="victim"))],
        ids=["PUT", "SUB"],
    )
    def test_is_denied_another_id_at_an_endpoint_that_does_not_take_the_verb_too(
        self, role: Any, request_: Any
    ) -> None:
        proxy = GovernedProxy(sensor={"ids": ["p"], "put": ["*"], "get": ["*"]})
        body = put_body(1) if role == "subscriber" else None

        reply = proxy.ask_as("sensor", request_, body, role=role)

        assert isinstance(reply, Denied)
        assert [one.right for one in proxy.denials] == ["id"]

    def test_learns_no_numbering_of_a_topic_to_which_it_may_not_put(self) -> None:
        proxy = GovernedProxy(sensor={"ids": ["p"], "put": ["mine"]})

        reply = proxy.ask_as("sensor", a_hello("publisher", "p", topics=("mine", "theirs")))

        assert isinstance(reply, Denied)
        assert reply.topic == "theirs"

    def test_cannot_commit_what_another_key_has_staged_for_a_topic_of_that_one(self) -> None:
        proxy = GovernedProxy(
            mine={"ids": ["p"], "put": ["mine"]}, theirs={"ids": ["p"], "put": ["theirs"]}
        )
        proxy.ask_as("mine", a_hello("publisher", "p"))
        proxy.ask_as("theirs", a_stage(1, topic="theirs"), put_body(1))

        reply = proxy.ask_as("mine", a_commit(1, (0, NONCE, 1)))

        assert isinstance(reply, Denied)
        assert (reply.right, reply.topic) == ("put", "theirs")
        assert "theirs" not in proxy.state.topics


class TestAStatus:
    def test_shows_only_the_topics_of_the_key(self) -> None:
        proxy = GovernedProxy(sensor=ALL | {"status": ["b*"]}, other=ALL)
        for topic in ("a", "b1", "b2", "c"):
            proxy.ask_as("other", a_put(1, topic=topic, client="p"), put_body(1))
            proxy.ask_as("other", a_sub(topic=topic))
        proxy.ask_as("other", a_hello("subscriber", "s"))
        for control, topic in enumerate(("a", "b1", "b2", "c"), 1):
            proxy.ask_as("other", a_sub(control, topic=topic))

        first = proxy.ask_as("sensor", Status(**HEAD, topics_max=1))
        assert isinstance(first, StatusReport)
        rest = proxy.ask_as("sensor", Status(**HEAD, after_topic=str(first.next_topic)))
        assert isinstance(rest, StatusReport)

        assert [one.topic for one in (*first.topics, *rest.topics)] == ["b1", "b2"]
        assert (first.topics_count, first.sessions_count, rest.store_path) == (2, 0, "")

    def test_of_the_tree_needs_the_right_to_all_topics(self) -> None:
        proxy = GovernedProxy(some=ALL | {"status": ["b*"]}, all=ALL)

        assert isinstance(proxy.ask_as("some", Node(**HEAD)), Denied)
        assert isinstance(proxy.ask_as("all", Node(**HEAD)), NodeReport)


class TestWhatIsPushed:
    @pytest.mark.parametrize(
        "patterns",
        [exact("a.1", "b"), (Pattern("prefix", "a."),), (Pattern("prefix", "a.x"),), ()],
    )
    def test_may_be_asked_for_within_the_rights(self, patterns: tuple[Pattern, ...]) -> None:
        proxy = GovernedProxy(sensor=LIMITED)

        assert isinstance(proxy.ask_as("sensor", an_interest(*patterns)), InterestAck)
        assert proxy.state.kept(Pushes).links.applied(LINK, key_of("sensor")) == set(patterns)

    @pytest.mark.parametrize(
        "patterns",
        [
            exact("a.1", "c"),
            (EVERYTHING,),
            (Pattern("prefix", "a"),),
            (Pattern("prefix", "b"),),
            (Pattern("glob", "*"),),
            (Pattern("glob", "a.*"),),
            (Pattern("regex", "a[.]1|c"),),
            (Pattern("unknown", "a.1"),),
            exact("b.dead"),
        ],
        ids=str,
    )
    def test_is_not_more_than_the_rights(self, patterns: tuple[Pattern, ...]) -> None:
        proxy = GovernedProxy(sensor=LIMITED)

        assert isinstance(proxy.ask_as("sensor", an_interest(*patterns)), Denied)
        assert len(proxy.state.kept(Pushes).links) == 0

    @pytest.mark.parametrize("pattern", [EVERYTHING, Pattern("prefix", "a"), *exact("a.dead")])
    def test_has_no_dead_letters_without_the_right_to_them(self, pattern: Pattern) -> None:
        proxy = GovernedProxy(sensor={"ids": ["s"], "get": ["*"]})

        reply = proxy.ask_as("sensor", an_interest(pattern))

        assert isinstance(reply, Denied)
        assert reply.right == "dead_letters"

    def test_passes_no_other_relay_without_the_right_to_be_one(self) -> None:
        """A node that is named as one below gets LOOP from those above, and no pushes."""
        proxy = GovernedProxy(sensor=LIMITED, relay=RELAY)
        wish = replace(an_interest(*exact("b")), below=("relay-7",))

        reply = proxy.ask_as("sensor", wish)

        assert isinstance(reply, Denied)
        assert reply.right == "relay"
        assert "relays below it" in reply.text
        assert "relay-7" not in proxy.state.kept(Pushes).links.below
        own = replace(wish, below=(wish.client,))
        for name, allowed in (
            ("sensor", own),
            ("relay", replace(wish, version=2, link=LINK[::-1])),
        ):
            assert isinstance(proxy.ask_as(name, allowed), InterestAck)

    def test_is_not_everything_where_a_link_has_too_many_patterns(self) -> None:
        proxy = GovernedProxy(sensor=LIMITED, relay=ALL)
        many = an_interest(*exact(*(f"a.{number}" for number in range(100))))

        assert isinstance(proxy.ask_as("sensor", many), LimitAnswer)
        assert proxy.state.kept(Pushes).links.applied(LINK, key_of("sensor")) == frozenset()
        proxy.ask_as("relay", many)
        assert proxy.state.kept(Pushes).links.applied(LINK, key_of("relay")) == {EVERYTHING}

    def test_goes_to_the_key_that_asked(self) -> None:
        proxy = GovernedProxy(sensor=LIMITED, other=ALL)
        proxy.ask_as("sensor", an_interest(*exact("b")))

        assert proxy.state.kept(Pushes).links.applied(LINK, key_of("other")) == frozenset()
        reply = proxy.ask_as("other", an_interest(EVERYTHING, version=2))
        assert not isinstance(reply, InterestAck)

    def test_by_level_0_needs_the_id_and_the_topic(self) -> None:
        proxy = GovernedProxy(sensor={"ids": ["p"], "put": ["a", "a.*"]}, other=ALL)
        proxy.ask_as("other", a_hello("publisher", "p"))
        proxy.ask_as("other", a_hello("publisher", "q"))
        proxy.ask_as("other", an_interest(EVERYTHING))

        became = {
            (client, topic): offered(
                proxy.engine,
                encode_offer(topic, an_offer(client), put_body(1)),
                now_ns=1,
                key=key_of("sensor"),
            )
            for client in ("p", "q")
            for topic in ("a", "b", "a.dead")
        }

        assert [one for one, what in became.items() if what == "taken"] == [("p", "a")]
        assert set(became.values()) == {"taken", "refused"}


def an_offer(client: str) -> Offer:
    return Offer(publisher=client, epoch=1, first_sequence=1, count=1, crc=crc32(put_body(1)))


class TestARelay:
    def test_asks_with_the_rights_of_the_key_that_it_names(self) -> None:
        proxy = GovernedProxy(relay=RELAY, sensor={"ids": ["s"], "get": ["t"]})
        sub = replace(a_sub(), key=key_of("sensor"))

        assert not isinstance(proxy.ask_as("relay", sub), Denied)
        refused = proxy.ask_as("relay", replace(sub, topic="other"))
        assert isinstance(refused, Denied)
        assert "the key 'sensor' may not" in refused.text
        assert "(asked by 'sensor', by way of 'relay')" in refused.text

    def test_cannot_do_for_another_what_it_may_not_do_itself(self) -> None:
        proxy = GovernedProxy(relay={"relay": True, "ids": ["*"], "get": ["here.*"]}, sensor=ALL)
        sub = replace(a_sub(topic="there"), key=key_of("sensor"))

        refused = proxy.ask_as("relay", sub)
        assert isinstance(refused, Denied)
        assert "the key 'relay' may not" in refused.text
        assert not isinstance(proxy.ask_as("relay", replace(sub, topic="here.1")), Denied)

    def test_that_does_not_say_for_whom_it_asks_is_refused(self) -> None:
        """One that knows no keys below would lend its own rights to strangers."""
        proxy = GovernedProxy(relay=RELAY)

        for request in (a_sub(), a_history(0)):
            reply = proxy.ask_as("relay", request)
            assert isinstance(reply, Denied)
            assert reply.right == "relay"
        assert isinstance(proxy.ask_as("relay", an_interest(EVERYTHING)), InterestAck)

    def test_names_a_key_that_is_known(self) -> None:
        proxy = GovernedProxy(relay=RELAY)

        assert isinstance(proxy.ask_as("relay", replace(a_sub(), key=key_of("stranger"))), Denied)

    def test_is_what_its_entry_says_and_not_who_names_another_key(self) -> None:
        proxy = GovernedProxy(sensor=ALL, operator=ALL)

        reply = proxy.ask_as("sensor", replace(a_sub(), key=key_of("operator")))

        assert isinstance(reply, Denied)
        assert reply.right == "relay"

    def test_is_believed_by_a_relay_above_and_no_other_key_is(self) -> None:
        knows = authority(relay=RELAY, sensor=ALL)
        request = replace(a_sub(), key=key_of("operator"))

        assert knows.asker(key_of("relay"), request) == key_of("operator")
        assert knows.asker(key_of("sensor"), request) == key_of("sensor")
        assert authority(relay=None).asker(key_of("relay"), request) == key_of("relay")
        assert authority().asker("", request) == ""

    @pytest.mark.parametrize(
        ("request_", "lacking"),
        [
            (a_sub(topic="there"), "get"),
            (a_history(0, topic="here"), "history"),
            (replace(a_sub(topic="here"), client="other"), "id"),
            (an_action(Pause()), "admin"),
            (Status(**HEAD), "status"),
            (Match(**HEAD, match=Pattern("prefix", "here"), control=1), "get"),
            (Fetch(**HEAD, match=EVERYTHING, boot="b"), "get"),
        ],
        ids=lambda one: one if isinstance(one, str) else type(one).__name__,
    )
    def test_holds_those_below_it_to_their_entries(self, request_: Any, lacking: str) -> None:
        """The proxy sees the relay above alone, which may do more."""
        lower: Said = {"relay": True, "ids": ["s", "reader"], "get": ["here"], "status": ["here"]}
        knows = authority(lower=lower, operator=ALL, upper=RELAY)
        relayed = replace(request_, key=key_of("operator"))

        refused = knows.denial_of_relayed(key_of("lower"), relayed)

        assert refused is not None
        assert (refused.lacking, refused.right) == ("lower", lacking)
        assert knows.denial_of_relayed(key_of("upper"), relayed) is None
        assert knows.denial_of_relayed(key_of("lower"), request_) is None, "it asks for itself"
        assert knows.denial_of_relayed(key_of("operator"), relayed) is None, "it is no relay"


class TestOtherRights:
    def test_end_the_wait_of_a_get_and_the_links_of_the_keys_that_changed(self) -> None:
        proxy = GovernedProxy(sensor=ALL, other=ALL)
        proxy.ask_as("sensor", a_hello("subscriber", "s"))
        proxy.ask_as("sensor", a_sub())
        proxy.ask_as("sensor", an_interest(*exact("t")))
        proxy.ask_as("other", replace(an_interest(*exact("t")), link=LINK[::-1]))
        assert proxy.ask_as("sensor", a_get(0, wait_ms=10_000)) is None

        proxy.engine.govern(authority(sensor=ALL | {"get": ["u"]}, other=ALL))

        assert proxy.answer() is not None
        assert len(proxy.state.kept(Pushes).links) == 1
        assert proxy.state.kept(Pushes).links.expire(0.0) == [LINK]  # for the data socket to forget
        assert isinstance(proxy.ask_as("sensor", a_get(0, request=2)), Denied)
