"""Scenario files: what is read, and what is reported of every mistake."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.limits import STEP_MESSAGES_MAX
from reliable_pubsub.common.topic_settings import split_document
from reliable_pubsub.common.yaml_file import Document, parse_yaml
from reliable_pubsub.lab.catalogue import about, load_scenario, shipped
from reliable_pubsub.lab.core.scenario import (
    AT_ONCE,
    PROXY,
    After,
    AllSubscribed,
    At,
    RandomEvents,
    Scenario,
    ScenarioEvent,
)
from reliable_pubsub.lab.core.scenario_events import duration_of
from reliable_pubsub.lab.core.scenario_file import parse_scenario

PARTS = ["What happens", "Look at", "Promise", "Question"]
WHOLE = """
title: The proxy dies
seed: 7
fault: dedup_last_id
patience: 4s
proxy: {durability: os}
publishers:
  publisher-1:
    steps: [{topic: news, message: hello, number_of_times: 100}]
  publisher-2:
    id: publisher-1
    start: {process: publisher-1, put: 50}
    ack_timeout: 200ms
    send_retries: 3
    steps: steps.yaml
subscribers:
  subscriber-1:
    steps:
      - {action: subscribe, topic: news}
      - {action: get, topic: news, number_of_times: all}
events:
  - {after: {process: publisher-1, put: 40}, kill: proxy, restart: 0.3s}
  - {at: 1s, cut: everything, for: 0.5s, after_bytes: 37}
  - {at: 2, delay: [publisher-1, publisher-2], by: 300ms}
  - {at: 2s, kill: subscriber-1, restart: never}
  - {at: 3s, restart: subscriber-1}
  - {every: 0.5s, random: [kill, stop], of: [proxy], until: 5s}
expect: {exit_codes: {publisher-1: 4}, violated: [V2, V12]}
"""
STEPS = "steps: [{topic: news, message: bye, number_of_times: 20}]"


def load(name: str) -> Document:
    return parse_yaml(STEPS, name)


def read(text: str) -> Scenario:
    document = parse_yaml(textwrap.dedent(text).lstrip(), "s.yaml")
    return parse_scenario(document, load=load, check_proxy=split_document)


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as refused:
        read(text)
    return str(refused.value).splitlines()


def with_events(*events: str) -> str:
    lines = "".join(f"  - {event}\n" for event in events)
    return f"""title: x
publishers: {{p: {{steps: [{{topic: t, message: m}}]}}}}
subscribers: {{s: {{steps: [{{action: subscribe, topic: t}}]}}}}
events:
{lines}"""


def test_a_scenario_is_read_whole() -> None:
    scenario = read(WHOLE)

    assert scenario.title == "The proxy dies"
    assert (scenario.seed, scenario.fault, scenario.patience_s) == (7, "dedup_last_id", 4.0)
    assert scenario.proxy == {"durability": "os"}
    assert scenario.processes == ("proxy", "publisher-1", "publisher-2", "subscriber-1")
    assert scenario.expect.exit_codes == {"publisher-1": 4}
    assert scenario.expect.violated == ["V2", "V12"]


def test_clients_have_their_steps_and_their_beginning() -> None:
    clients = read(WHOLE).clients

    first, second, subscriber = clients.values()
    assert (first.start, second.start, subscriber.start) == (
        AllSubscribed(),
        After("publisher-1", 50),
        AT_ONCE,
    )
    assert (first.id, second.id) == ("publisher-1", "publisher-1")
    assert (second.ack_timeout_s, second.send_retries) == (0.2, 3)
    assert second.plan == {"steps": [{"topic": "news", "message": "bye", "number_of_times": 20}]}


def test_events_are_read_with_the_time_at_which_they_happen() -> None:
    scenario = read(WHOLE)

    kill, cut, delay, never, restart = scenario.events
    assert kill == ScenarioEvent(
        when=After("publisher-1", 40), what="kill", targets=(PROXY,), restart_s=0.3
    )
    assert (cut.when, cut.lasts_s, cut.after_bytes) == (At(1.0), 0.5, 37)
    assert cut.targets == ("publisher-1", "publisher-2", "subscriber-1")  # who has a link
    assert (delay.targets, delay.by_s) == (("publisher-1", "publisher-2"), 0.3)
    assert never.restart_s is None
    assert (restart.what, restart.targets) == ("restart", ("subscriber-1",))
    assert scenario.random == (
        RandomEvents(every_s=0.5, until_s=5.0, kinds=("kill", "stop"), targets=(PROXY,)),
    )


def test_a_subscriber_may_get_all_and_the_lab_counts_what_that_is() -> None:
    scenario = read(WHOLE)

    subscriber = scenario.clients["subscriber-1"]
    assert subscriber.gets_all
    assert subscriber.steps[-1].number_of_times == STEP_MESSAGES_MAX
    assert scenario.messages_planned(subscriber) == scenario.puts_planned("news") == 120


RELAYS = """
title: Two relays
relays:
  r1: {}
  r2: {through: r1, strategy: dedup}
publishers: {p: {steps: [{topic: t, message: m}]}}
subscribers:
  s: {through: r2, steps: [{action: subscribe, topic: t, push: true}]}
  s2: {steps: [{action: subscribe, topic: t}]}
events:
  - {at: 1s, kill: r1}
  - {at: 2s, cut: everything, for: 1s}
  - {at: 3s, cut_push: everything, for: 1s}
"""


def test_relays_stand_between_the_proxy_and_those_that_ask_through_them() -> None:
    scenario = read(RELAYS)

    assert scenario.processes == ("proxy", "r1", "r2", "p", "s", "s2")
    assert [(one.through, one.strategy) for one in scenario.relays.values()] == [
        ("proxy", "subsume"),
        ("r1", "dedup"),
    ]
    assert {name: one.through for name, one in scenario.clients.items()} == {
        "p": "proxy",
        "s": "r2",
        "s2": "proxy",
    }


def test_a_relay_dies_and_is_cut_off_as_a_client_is_and_pushes_have_links_of_their_own() -> None:
    kill, cut, cut_push = read(RELAYS).events

    assert kill.targets == ("r1",)
    assert cut.targets == ("r1", "r2", "p", "s", "s2")
    assert cut_push.targets == ("r1", "r2", "s", "s2")


@pytest.mark.parametrize(
    ("relays", "place", "expected"),
    [
        ("{r1: {through: r2}, r2: {}}", "relays.r1.through", "expected proxy"),
        ("{r1: {}, r2: {through: r}}", "relays.r2.through", "did you mean 'r1'"),
        ("{r1: {strategy: some}}", "relays.r1.strategy", "none, dedup, subsume, all"),
        ("{r1: {steps: []}}", "relays.r1.steps", "found an unknown key"),
        ("{p: {}}", "publishers.p", "found the name of a relay again"),
        ("[r1]", "relays", "expected relays by name"),
    ],
)
def test_what_is_wrong_with_a_relay_is_reported_with_its_place(
    relays: str, place: str, expected: str
) -> None:
    told = problems(
        f"title: x\nrelays: {relays}\npublishers:\n  p: {{steps: [{{topic: t, message: m}}]}}\n"
    )

    assert any(f"{place}: " in line and expected in line for line in told), told


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("p: {through: r1, steps: [{topic: t, message: m}]}", "publishers.p.through"),
        (
            "p: {start: {process: r1, put: 1}, steps: [{topic: t, message: m}]}",
            "publishers.p.start",
        ),
    ],
)
def test_a_publisher_does_not_speak_to_relays_and_a_relay_puts_nothing(
    line: str, place: str
) -> None:
    told = problems(f"title: x\nrelays: {{r1: {{}}}}\npublishers:\n  {line}\n")

    assert place in told[0]


@pytest.mark.parametrize(
    ("written", "seconds"),
    [(2, 2.0), (0.5, 0.5), ("0.5s", 0.5), ("2 s", 2.0), ("300ms", 0.3)],
)
def test_a_duration_is_a_number_of_seconds_or_has_its_unit(written: Any, seconds: float) -> None:
    assert duration_of(written) == seconds


@pytest.mark.parametrize("written", ["", "1", "1m", "s", "-1s", "1e3s", "90000s"])
def test_what_is_no_duration_is_refused(written: str) -> None:
    assert duration_of(written) is None


@pytest.mark.parametrize(
    ("event", "place", "expected"),
    [
        ("{at: 1s, kil: proxy}", "events[0].kil", "did you mean 'kill'"),
        ("{at: 1s}", "events[0]", "found none, expected one of kill, stop"),
        ("{kill: proxy}", "events[0]", "found neither, expected one of at and after"),
        ("{at: 1s, kill: proxi}", "events[0].kill", "did you mean 'proxy'"),
        ("{at: 1s, kill: proxy, stop: p}", "events[0]", "found kill and stop, expected one of"),
        ("{at: 1s, cut: proxy}", "events[0].cut", "expected everything, or p, s"),
        ("{at: 1s, fill_disk: p}", "events[0].fill_disk", "expected proxy"),
        ("{at: soon, kill: proxy}", "events[0].at", "found 'soon', expected a duration such as"),
        ("{at: 1s, kill: proxy, for: 1s}", "events[0].for", "found with kill, expected only with"),
        ("{at: 1s, delay: p}", "events[0]", "found delay without by, expected both"),
        ("{after: {process: q, put: 1}, kill: p}", "events[0].after.process", "one of p, s"),
        ("{after: {process: s, put: 1}, kill: p}", "events[0].after.put", "expected get"),
        ("{after: {process: p}, kill: p}", "events[0].after.put", "a whole number from 1"),
        ("{every: 1s, random: [explode], until: 2s}", "events[0].random[0]", "one of kill, stop"),
        ("{every: 1s, random: kill}", "events[0]", "found no until, expected every: 0.5s"),
        ("kill", "events[0]", "found 'kill', expected a mapping such as"),
    ],
)
def test_what_is_wrong_with_an_event_is_reported_with_its_place(
    event: str, place: str, expected: str
) -> None:
    told = problems(with_events(event))

    assert told[0].startswith(f"s.yaml, line 5, {place}: "), told
    assert expected in told[0]


def test_of_a_process_that_is_not_there_nothing_else_is_reported() -> None:
    assert len(problems(with_events("{after: {process: q, get: 1}, kill: p}"))) == 1


def places_of(text: str) -> list[str]:
    return [line.split(": ")[0] for line in problems(text)]


def test_all_keys_that_are_wrong_are_reported_at_once_in_the_order_of_the_file() -> None:
    assert places_of(
        """
        title: 7
        speed: 1
        publishers:
          p: {steps: [{topic: t, mesage: m}], start: later}
        expect: {violated: [V14], exit_codes: {p: 6}}
        """
    ) == [
        "s.yaml, line 1, title",
        "s.yaml, line 2, speed",
        "s.yaml, line 4, publishers.p.steps[0].mesage",
        "s.yaml, line 4, publishers.p.start",
        "s.yaml, line 5, expect.violated[0]",
        "s.yaml, line 5, expect.exit_codes.p",
    ]


def test_where_all_keys_are_right_all_that_does_not_fit_together_is_reported() -> None:
    assert places_of(
        """
        title: x
        proxy: {durabilty: sync}
        publishers:
          proxy: {steps: [{topic: t, message: m}]}
          a_b: {steps: [{topic: t, message: m}]}
          p: {steps: [{topic: t}]}
        subscribers:
          p: {steps: [{action: subscribe, topic: t}]}
        events:
          - {at: 1s, kill: p, until: 2s}
          - {every: 1s, random: kill, until: 2s, kill: p}
        expect: {exit_codes: {unknown: 1}}
        """
    ) == [
        "s.yaml, line 2, durabilty",
        "s.yaml, line 4, publishers.proxy",
        "s.yaml, line 5, publishers.a_b",
        "s.yaml, line 6, publishers.p.steps[0]",
        "s.yaml, line 8, subscribers.p",
        "s.yaml, line 10, events[0].until",
        "s.yaml, line 11, events[1].kill",
        "s.yaml, line 12, expect.exit_codes.unknown",
    ]


def test_a_step_before_the_last_one_does_not_get_all() -> None:
    (told,) = problems(
        with_events("{at: 1s, kill: p}").replace(
            "{action: subscribe, topic: t}",
            "{action: subscribe, topic: t}, {action: get, topic: t, number_of_times: all}, "
            "{action: get, topic: t}",
        )
    )

    assert "steps[1].number_of_times: found 'all', expected a whole number" in told


@pytest.mark.parametrize("text", ["", "[]", "title"])
def test_what_is_no_scenario_at_all_is_reported(text: str) -> None:
    (told,) = problems(text)

    assert "expected a scenario" in told


def test_a_setting_that_the_lab_gives_is_refused() -> None:
    (told,) = problems(
        with_events("{at: 1s, kill: p}").replace("title: x", "title: x\nproxy: {data_dir: d}")
    )

    assert told == (
        "s.yaml, line 2, proxy.data_dir: found a setting that the lab itself gives; leave it out"
    )


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        (
            "{action: subscribe, topic: news}, {action: get, topic: nwes, number_of_times: 2}",
            "found 'nwes', to which no step before subscribes; did you mean 'news'?",
        ),
        (
            "{action: subscribe, topic: nwes}, {action: get, topic: nwes, number_of_times: 2}",
            "found 'nwes', on which no publisher of the scenario puts; did you mean 'news'?",
        ),
        (
            "{action: subscribe, topic: news}, {action: unsubscribe, topic: news}, "
            "{action: get, topic: news}",
            "found 'news', to which no step before subscribes",
        ),
    ],
)
def test_a_get_that_can_never_succeed_is_refused_before_the_run(steps: str, told: str) -> None:
    found = problems(f"""
        title: x
        publishers: {{p: {{steps: [{{topic: news, message: m}}]}}}}
        subscribers: {{s: {{steps: [{steps}]}}}}
        """)

    assert found[0].startswith("s.yaml, line 3, subscribers.s.steps[")
    assert found[0].endswith(f"topic: {told}")


GETS_80 = "{action: get, topic: news, number_of_times: 80}"
ALL = "{action: get, topic: news, number_of_times: all}"


def scenario_of_gets(*subscribers: str) -> str:
    steps = [f"s{n}: {{steps: [{one}]}}" for n, one in enumerate(subscribers, start=1)]
    return f"""
        title: x
        publishers: {{p: {{steps: [{{topic: news, message: m, number_of_times: 100}}]}}}}
        subscribers: {{{", ".join(steps)}}}
        """


@pytest.mark.parametrize(
    "subscribers",
    [
        ["{action: subscribe, topic: news}, {action: get, topic: news, number_of_times: 150}"],
        [f"{{action: subscribe, topic: news}}, {GETS_80}, {GETS_80}"],
        [f"{{action: subscribe, topic: news, group: g}}, {GETS_80}"] * 2,
    ],
)
def test_a_plan_that_waits_for_more_messages_than_are_put_is_refused(
    subscribers: list[str],
) -> None:
    (found,) = problems(scenario_of_gets(*subscribers))

    assert "number_of_times: found 1" in found
    assert "expected at most 100: so many are put, and it would wait forever" in found


@pytest.mark.parametrize(
    "steps",
    [
        "{action: subscribe, topic: news}, {action: get, topic: news, number_of_times: 100}",
        f"{{action: subscribe, topic: news}}, {GETS_80}, {ALL}",
        f"{{action: subscribe, topic: news}}, {GETS_80}, "
        f"{{action: seek, topic: news, from: earliest}}, {GETS_80}",
        "{action: subscribe, topic: news}, "
        "{action: get, topic: news, number_of_times: 150, on_empty: skip}",
    ],
)
def test_a_plan_that_can_end_is_not_refused(steps: str) -> None:
    assert read(scenario_of_gets(steps)).topics == {"news"}


def test_a_client_that_would_never_start_is_refused() -> None:
    (found,) = problems("""
        title: x
        publishers:
          p: {steps: [{topic: news, message: m, number_of_times: 100}]}
          q: {start: {process: p, put: 101}, steps: [{topic: news, message: m}]}
        """)

    assert found.endswith(
        "publishers.q.start.put: found 101, expected at most 100: so many are in the plan of p, "
        "and q would never start"
    )


@pytest.mark.parametrize("step", ["topic: news.dead", "topic: other, on_empty: skip"])
def test_a_get_that_may_find_nothing_or_dead_letters_is_accepted(step: str) -> None:
    topic = step.split(",")[0]

    assert read(f"""
        title: x
        publishers: {{p: {{steps: [{{topic: news, message: m}}]}}}}
        subscribers: {{s: {{steps: [{{action: subscribe, {topic}}}, {{action: get, {step}}}]}}}}
        """)


def test_steps_in_another_file_are_checked_there() -> None:
    text = "title: x\npublishers: {p: {steps: other.yaml}}\nevents: []"
    document = parse_yaml(text, "s.yaml")

    with pytest.raises(ConfigurationError) as refused:
        parse_scenario(
            document,
            load=lambda name: parse_yaml("steps: [{topic: t}]", name),
            check_proxy=split_document,
        )

    assert str(refused.value).startswith("other.yaml, line 1, steps[0]: found neither")


def test_a_disk_that_is_filled_cannot_be_copied() -> None:
    (told,) = problems(with_events("{at: 1s, fill_disk: proxy}", "{at: 2s, rollback: proxy}"))

    assert "expected them in two scenarios" in told


GUIDE = (Path(__file__).parents[2] / "docs" / "teach" / "lab.md").read_text(encoding="utf-8")


def test_the_example_of_the_guide_is_a_scenario() -> None:
    (example,) = re.findall(r"(?s)```yaml\n(.*?)```", GUIDE)

    assert len(read(example).events) == 2


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_scenario_teaches_in_four_paragraphs_below_its_title(name: str) -> None:
    path = shipped()[name]

    assert load_scenario(path).title
    assert [part.split(": ")[0] for part in about(path).split("\n\n")] == PARTS


SHARED = """
title: Two proxies
database: {{}}
publishers:
  publisher-1:
    steps: [{{topic: news, message: hello}}]
events:
  - {event}
"""


def test_with_a_database_two_proxies_take_part_and_their_links_lead_to_it() -> None:
    scenario = read(SHARED.format(event="{at: 1s, cut: everything}"))

    assert scenario.processes == ("proxy", "proxy-2", "database", "publisher-1")
    assert scenario.events[0].targets == ("proxy", "proxy-2", "publisher-1")


@pytest.mark.parametrize(
    "event", ["{at: 1s, fill_disk: proxy}", "{at: 1s, rollback: proxy}", "{at: 1s, cut: database}"]
)
def test_with_a_database_the_proxies_have_no_disk_and_the_database_no_link(event: str) -> None:
    (told,) = problems(SHARED.format(event=event))

    assert "events[0]" in told


def test_chance_does_nothing_to_a_database_that_is_not_named() -> None:
    every = "{every: 1s, random: kill, until: 2s}"

    assert read(SHARED.format(event=every)).random[0].targets == ("proxy", "proxy-2", "publisher-1")
