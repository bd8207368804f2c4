"""The report of a run: what stands in the page, whatever the run says."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from reliable_pubsub.__main__ import main
from reliable_pubsub.common.core.journal import Begin, End, Event, encode_line
from reliable_pubsub.lab.core.run import LabRun
from reliable_pubsub.lab.core.verdict import Verdict
from reliable_pubsub.lab.report import report_page_text
from reliable_pubsub.lab.report_lanes import LINK_FAULTS

from .report_runs import (
    LIVES,
    LOST,
    at,
    broken_verdict,
    damaged_run,
    holding_verdict,
    sound_run,
)
from .small_world import SmallWorld, write_run

PAGE_BYTES_MAX = 2_000_000
HOSTILE = "<script>alert('x')</script><img src=x onerror=y>"


def page_of(run: LabRun, verdict: Verdict, title: str = "A title", about: str = "") -> str:
    return report_page_text(run, verdict, title=title, about=about)


class Tags(HTMLParser):
    """Every tag with its attributes, and the text of the page without style and script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._silent = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._silent = tag in ("style", "script")

    def handle_endtag(self, tag: str) -> None:
        self._silent = False

    def handle_data(self, data: str) -> None:
        self.text += "" if self._silent else data


def figure_of(page: str) -> ElementTree.Element:
    """The timeline, as XML."""
    found = re.search(r"(<figure>.*</figure>)", page, re.DOTALL)
    assert found is not None
    return ElementTree.fromstring(found[1])


@pytest.fixture(scope="module")
def sound() -> str:
    return page_of(sound_run(), holding_verdict(), about="First.\n\nSecond.")


@pytest.fixture(scope="module")
def damaged() -> str:
    return page_of(damaged_run(sound_run()), broken_verdict())


def test_every_process_has_a_lane_of_its_name(sound: str) -> None:
    texts = [text.strip() for text in figure_of(sound).itertext()]

    assert set(LIVES) <= set(texts)


def test_every_kill_is_a_mark(sound: str) -> None:
    killed = sum(isinstance(line, Event) and line.what == "kill" for line in sound_run().lines)

    marks = [use for use in figure_of(sound).iter() if use.get("href") == "#kill"]

    assert killed > 0
    assert len(marks) == killed


def kills_of(page: str) -> int:
    (found,) = re.findall("<dt>kills</dt><dd>([0-9,]+)</dd>", page)
    return int(found)


@pytest.mark.parametrize(("what", "target"), [("kill", "relay-1"), ("rollback", "proxy")])
def test_kills_of_relays_and_rollbacks_are_kills_with_a_lane(what: str, target: str) -> None:
    lines = [
        Begin(at_ns=at(0.5), process="relay-1", pid=7, role="relay", wall_ns=0),
        *(line for line in sound_run().lines if not isinstance(line, End)),
        Event(at_ns=at(19.9), process="lab", pid=1, what=what, target=target),
    ]
    before = kills_of(page_of(sound_run(), holding_verdict()))

    page = page_of(LabRun(lines=lines, outputs={}), holding_verdict())

    assert kills_of(page) == before + 1
    assert "relay-1" in [text.strip() for text in figure_of(page).itertext()]


def test_a_kill_of_a_process_without_a_journal_is_counted() -> None:
    kill = Event(at_ns=at(17.0), process="lab", pid=1, what="kill", target="relay-9")
    before = kills_of(page_of(sound_run(), holding_verdict()))

    assert kills_of(
        page_of(LabRun(lines=[*sound_run().lines, kill], outputs={}), holding_verdict())
    ) == (before + 1)


def test_the_page_and_the_terminal_count_the_judged_rules_alike(tmp_path: Path) -> None:
    world = SmallWorld()
    world.start_client("p1", "publisher")
    world.put("p1", "t")
    write_run(world, tmp_path)
    page = tmp_path / "report.html"

    said = CliRunner().invoke(main, ["lab", "check", str(tmp_path), "--report", str(page)])

    (judged,) = re.findall(r"holds: (\d+ of 13 rules judged)", said.output)
    assert judged != "13 of 13 rules judged"
    assert f"{judged}, all hold" in Tags(page.read_text(encoding="utf-8")).text


@pytest.mark.parametrize("fault", LINK_FAULTS)
def test_a_fault_of_a_link_is_a_bar_until_it_is_healed(fault: str) -> None:
    lines = [
        Event(at_ns=at(begin), process="lab", pid=1, what=what, target="subscriber-1")
        for begin, what in ((3.0, fault), (5.0, "heal"))
    ]
    run = LabRun(lines=[*sound_run().lines, *lines], outputs={})
    before = len(bars(page_of(sound_run(), holding_verdict()), fault))

    page = page_of(run, holding_verdict())

    assert len(bars(page, fault)) == before + 1
    assert fault in {
        name.removeprefix("period ")
        for _, attributes in Tags(page[page.index('class="legend"') :]).tags
        if (name := attributes.get("class") or "").startswith("period ")
    }


def bars(page: str, fault: str) -> list[ElementTree.Element]:
    return [one for one in figure_of(page).iter() if one.get("class") == f"period {fault}"]


def test_the_end_of_all_faults_is_no_fault(sound: str) -> None:
    assert not [one for one in figure_of(sound).iter() if one.get("class") == "moment quiet"]
    assert "no more faults" in Tags(sound).text


def test_the_verdict_the_title_and_each_paragraph_of_the_comment_stand_there(sound: str) -> None:
    text = Tags(sound).text

    for words in ("A title", "Holds", "First.", "Second."):
        assert words in text


def test_each_rule_stands_in_the_table_with_its_violations(damaged: str) -> None:
    verdict, text = broken_verdict(), Tags(damaged).text

    for rule in verdict.rules:
        assert rule.title in text
        for violation in rule.violations[:5]:
            assert violation.text in text
    assert "Violated" in text


def test_the_first_violation_comes_with_the_story_of_its_message(damaged: str) -> None:
    text = Tags(damaged).text

    assert f"The story of {LOST.message_id} on {LOST.topic}" in text
    assert f"sequence {LOST.sequence}: invoked" in text


def test_nothing_is_fetched(sound: str, damaged: str) -> None:
    for page in (sound, damaged):
        for tag, attributes in Tags(page).tags:
            assert tag not in ("link", "iframe", "img", "object", "embed"), tag
            for name in ("src", "href", "data", "action", "xlink:href"):
                assert (attributes.get(name) or "#").startswith("#"), (tag, attributes)
        assert "url(http" not in page
        assert "@import" not in page


def test_no_text_of_a_run_can_act() -> None:
    run = sound_run(names={"publisher-1": HOSTILE, "orders": HOSTILE})
    page = page_of(run, broken_verdict(text=HOSTILE), title=HOSTILE, about=HOSTILE)

    tags = Tags(page)

    assert [tag for tag, _ in tags.tags].count("script") == 1
    assert "img" not in {tag for tag, _ in tags.tags}
    assert not any(name.startswith("on") for _, attributes in tags.tags for name in attributes)
    assert HOSTILE in tags.text


def test_a_dense_run_is_summed_up_and_says_so() -> None:
    page = page_of(sound_run(puts_per_s=2000.0), holding_verdict())

    assert len(page.encode()) < PAGE_BYTES_MAX
    assert "each represents up to" in Tags(page).text


def test_a_run_of_few_marks_is_not_summed_up(sound: str) -> None:
    assert "each represents up to" not in Tags(sound).text


def test_lab_check_writes_the_page(tmp_path: Path) -> None:
    (tmp_path / "all.jsonl").write_bytes(b"".join(map(encode_line, sound_run().lines)))
    report = tmp_path / "report.html"

    ended = CliRunner().invoke(main, ["lab", "check", str(tmp_path), "--report", str(report)])

    assert ended.exit_code in (0, 1), ended.output
    assert "What happened" in Tags(report.read_text("utf-8")).text


def test_a_page_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "all.jsonl").write_bytes(b"".join(map(encode_line, sound_run().lines)))
    nowhere = tmp_path / "no" / "report.html"

    ended = CliRunner().invoke(main, ["lab", "check", str(tmp_path), "--report", str(nowhere)])

    assert ended.exit_code == 2
    assert "cannot be written" in " ".join(ended.output.split())
