"""The console as a person uses it: a real proxy, a real Chromium, what is seen and clicked."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from reliable_pubsub import Admin, InDoubtError, NotPossibleError
from reliable_pubsub.console.access import ConsoleClients
from reliable_pubsub.console.core.actions import AskedAction
from reliable_pubsub.lab.rig.keyed_service import KeyedService
from tests.browser import CHROMIUM, PAGE, QUIET, needs_browser

from .console_page import (
    CONTRAST,
    FIVE,
    NAMED,
    PILED_UP,
    SIZE,
    Seen,
    fill,
    link_of,
    put_on_topics,
    start_console,
)
from .harness import (
    IMPATIENT,
    PATIENCE_S,
    Process,
    Service,
    eventually,
    losing_link,
)

expect.set_options(timeout=PATIENCE_S * 1000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            timeout=PATIENCE_S * 1000, executable_path=CHROMIUM, args=["--no-sandbox", *QUIET]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("console")) as service:
        service.start_proxy()
        fill(service)
        yield service


@pytest.fixture(scope="module")
def console(world: Service) -> Process:
    return start_console(world)


Open = Callable[[str], Seen]


@pytest.fixture
def opened(browser: Browser) -> Iterator[Open]:
    """Opens pages, and looks in the end at whether something ran that must not."""
    pages: list[Seen] = []

    def open_page(link: str) -> Seen:
        pages.append(Seen(browser, link))
        return pages[-1]

    yield open_page
    for page in pages:
        page.close()


@pytest.fixture(scope="module")
def kept(browser: Browser, console: Process) -> Iterator[Seen]:
    page = Seen(browser, link_of(console))
    yield page
    page.close()


@pytest.fixture
def seen(kept: Seen, console: Process) -> Iterator[Seen]:
    """The page, loaded again in the same tab: another tab costs 1.5 s of CPU more."""
    kept.page.set_viewport_size(SIZE)
    kept.page.emulate_media(color_scheme="light")
    kept.page.goto("about:blank")
    kept.page.goto(link_of(console))
    yield kept
    kept.check()


def row(page: Page, name: str) -> Locator:
    """A row of the tree, or of another table, by its first cell."""
    return page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name, exact=True))


@needs_browser
class TestTheLivePage:
    def test_shows_topics_and_opens_them_to_those_who_put_and_read(self, seen: Seen) -> None:
        page = seen.page
        orders = page.get_by_role("row", name=re.compile("orders .*2 readers"))

        expect(orders).to_contain_text("3 dead letters")
        expect(orders).to_have_attribute("aria-expanded", "false")
        orders.get_by_role("button", name="Open").click()

        expect(page.get_by_role("row", name=re.compile("publisher ?shop"))).to_contain_text("QoS 2")
        display = page.get_by_role("row", name=re.compile("subscriber ?display"))
        expect(display).to_contain_text(re.compile(r"\d+ min|1 h|2 h"))  # what is left of its lease

    def test_says_who_is_slow_and_why(self, seen: Seen) -> None:
        slow = seen.page.get_by_role("table", name="Slow readers")

        expect(slow).to_contain_text("billing")
        expect(slow).to_contain_text("no lease, so its messages stay stored")

    def test_shows_rates_as_messages_come(self, seen: Seen, world: Service) -> None:
        row = seen.page.get_by_role("row", name=re.compile(r"\bflow\b"))
        with world.open_publisher("pump") as pump:

            def rises() -> bool:
                pump.put("flow", b"drop")
                found = row.get_by_role("gridcell").first
                return (
                    found.count() > 0
                    and re.fullmatch(r"[1-9][\d.,]*|0\.[1-9]", found.inner_text()) is not None
                )

            eventually(rises, "rate")

    def test_draws_what_was_seen_and_a_reload_keeps_it(self, seen: Seen) -> None:
        chart = seen.page.get_by_role("img", name=re.compile("^Put .s since"))
        expect(chart).to_be_visible()
        seen.page.reload()

        expect(chart).to_be_visible()
        kept = seen.page.evaluate("fetch('api/history').then((answer) => answer.json())")
        assert len(kept["at_s"]) > 1
        seen.go("topic", "orders")
        expect(seen.page.get_by_role("img", name=re.compile("Oldest waits since"))).to_be_visible()

    def test_holds_the_search_and_the_order_in_its_address(self, seen: Seen) -> None:
        page = seen.page
        page.get_by_label("Search").fill("oth")
        page.get_by_label("Order").select_option("size")
        expect(page).to_have_url(re.compile(r"search=oth&order=size$"))
        page.reload()

        expect(page.get_by_label("Search")).to_have_value("oth")
        expect(page.get_by_label("Order")).to_have_value("size")
        tree = page.get_by_role("treegrid")
        expect(tree.get_by_role("link", name="other")).to_be_visible()
        expect(tree.get_by_role("link", name="orders")).to_be_hidden()

    def test_is_used_by_the_keyboard_alone(self, seen: Seen) -> None:
        page = seen.page
        rows = page.get_by_role("treegrid").get_by_role("row")
        expect(rows.nth(2)).to_be_visible()
        page.get_by_role("searchbox", name="Search").focus()
        page.keyboard.type("o")
        page.keyboard.type("rders")
        expect(page.get_by_text("1 to 1 of 1")).to_be_visible()
        orders = page.get_by_role("treegrid").locator("tbody tr").first
        for _ in range(6):  # order, pages, then the tree
            page.keyboard.press("Tab")
            if orders.evaluate("row => row === document.activeElement"):
                break
        expect(orders).to_be_focused()
        page.keyboard.press("ArrowRight")
        expect(orders).to_have_attribute("aria-expanded", "true")
        page.keyboard.press("ArrowDown")
        expect(page.get_by_role("row", name=re.compile("publisher ?shop"))).to_be_focused()
        page.keyboard.press("ArrowLeft")
        expect(orders).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="orders", level=1)).to_be_visible()
        expect(page.get_by_role("main")).to_be_focused()  # a reader begins with the new view


@needs_browser
class TestMessages:
    def test_are_shown_newest_first_with_their_payload(self, seen: Seen) -> None:
        page = seen.go("topic", "orders")

        rows = page.get_by_role("table", name="Messages").locator("tbody tr")
        fifth = rows.filter(has_text=re.compile("shop_5.*key-0.*five"))
        expect(fifth).to_have_count(1)
        offsets = [int(text) for text in rows.get_by_role("rowheader").all_inner_texts()]
        assert offsets == sorted(offsets, reverse=True)
        assert len(offsets) >= len(FIVE)

    def test_are_found_by_offset_and_by_key(self, seen: Seen) -> None:
        page = seen.go("topic", "orders")
        page.get_by_role("combobox", name="Show").select_option("From offset")
        page.get_by_role("textbox", name="Value").fill("2")
        page.get_by_role("button", name="Show").click()
        rows = page.get_by_role("table", name="Messages").locator("tbody tr")
        expect(rows.first).to_contain_text("three")

        page.get_by_role("combobox", name="Show").select_option("Earliest")
        page.get_by_role("textbox", name="Key").fill("key-1")
        page.get_by_role("button", name="Show").click()

        expect(page.get_by_text(re.compile("Searched offsets 0 to"))).to_be_visible()
        expect(rows.first).to_contain_text("two")
        expect(rows.nth(1)).to_contain_text("four")
        expect(rows.filter(has_text="key-0")).to_have_count(0)

    def test_stay_with_what_a_person_has_typed_when_they_could_once_not_be_loaded(
        self, seen: Seen
    ) -> None:
        page = seen.go("topic", "orders")
        table = page.get_by_role("table", name="Messages")
        key = page.get_by_role("textbox", name="Key")
        expect(table).to_contain_text("five")
        key.fill("key-1")

        refusal = {"code": "IN_DOUBT", "text": "no answer in time"}
        page.route("**/api/messages*", lambda asked: asked.fulfill(status=503, json=refusal))
        expect(page.get_by_role("alert")).to_contain_text("no answer in time")
        expect(table).to_contain_text("five")
        page.unroute("**/api/messages*")

        expect(page.get_by_role("alert")).to_have_count(0)
        expect(key).to_have_value("key-1")

    def test_are_shown_with_their_story_headers_and_payload_in_three_forms(
        self, seen: Seen
    ) -> None:
        page = seen.go("topic", "orders")
        page.get_by_role("link", name="Message at offset 1", exact=True).click()
        one = page.get_by_role("complementary", name="Message at offset 1")

        expect(one).to_contain_text("shop put it as its message 2 of this topic, exactly once.")
        expect(one).to_contain_text(
            "billing rejected it after delivery 1, so it became dead letter 1"
        )
        expect(one).to_contain_text("source")
        expect(one.get_by_label("Payload as JSON")).to_contain_text('"word": "two"')
        one.get_by_role("button", name="Bytes").click()
        expect(one.get_by_label("Payload as Bytes")).to_contain_text("00000000  7b 22 6f")
        one.get_by_role("link", name="Close").click()
        expect(one).to_have_count(0)

    def test_of_a_place_that_is_none_say_so(self, seen: Seen) -> None:
        page = seen.go("topic", "orders", at="time yesterday")

        expect(page.get_by_role("alert")).to_contain_text("no time of ISO 8601")


@needs_browser
class TestWhatAnAttackerPuts:
    def test_is_shown_with_marks_and_never_run(self, seen: Seen) -> None:
        page = seen.page
        name = page.get_by_role("treegrid").get_by_role("link", name=re.compile("onerror"))
        expect(name).to_have_text("<img src=x onerror=alert(1)>U+202Egnp.exe")
        name.click()
        expect(page.get_by_role("heading", level=1)).to_have_text(
            "<img src=x onerror=alert(1)>U+202Egnp.exe"
        )
        expect(page).to_have_title("<img src=x onerror=alert(1)>U+202Egnp.exe · reliable-pubsub")
        page.get_by_role("link", name="Message at offset 0").click()
        one = page.get_by_role("complementary", name="Message at offset 0")
        expect(one.get_by_label("Payload as Text")).to_have_text(
            "<script>alert(1)</script>U+001B[31mredU+001B[0m U+202EU+200B"
        )
        expect(one).to_contain_text("</pre><script>alert(2)")
        expect(one).to_contain_text("<b>")

        assert page.locator("main img, main script, main b, main iframe, [onerror]").count() == 0
        assert not re.search("[\u202e\u200b\x1b]", page.locator("body").inner_text())
        assert not re.search("[\u202e\u200b\x1b]", page.locator("main").aria_snapshot())

    def test_could_not_run_even_if_it_became_markup(self, seen: Seen) -> None:
        expect(seen.page.get_by_role("treegrid")).to_be_visible()

        refused = seen.page.evaluate(
            """() => new Promise((resolve) => {
              addEventListener("securitypolicyviolation", (e) => resolve(e.violatedDirective));
              const script = document.createElement("script");
              script.textContent = "window.ran = true";
              document.body.append(script);
              if (window.ran) resolve("it ran");
            })"""
        )

        assert refused == "script-src-elem"


@needs_browser
def test_marks_that_pile_up_on_a_letter_leave_the_name_above_as_it_is(
    service: Service, opened: Open
) -> None:
    service.start_proxy()
    with service.open_publisher("shop") as shop:
        put_on_topics(shop, ["above"])
        page = opened(link_of(start_console(service))).page
        above = page.get_by_role("link", name="above", exact=True)
        expect(above).to_be_visible()
        before = above.screenshot(animations="disabled")

        put_on_topics(shop, ["b" + PILED_UP])
        expect(page.get_by_role("link", name=re.compile("^b."))).to_be_visible()

        assert above.screenshot(animations="disabled") == before


@needs_browser
class TestADeadLetter:
    def test_is_put_again_once_however_often_it_is_clicked_and_from_every_console(
        self, seen: Seen, opened: Open, world: Service
    ) -> None:
        another = opened(link_of(start_console(world)))
        before = world.topic("orders").end
        for one in (seen, another):
            one.go("letters", "orders.dead")
            expect(one.page.get_by_role("button", name="Put dead letter 2 again")).to_be_visible()
        expect(row(seen.page, "2")).to_contain_text("no address U+001B[2J 2")

        seen.page.get_by_role("button", name="Put dead letter 2 again").dblclick()
        another.page.get_by_role("button", name="Put dead letter 2 again").click()

        for one in (seen, another):
            expect(row(one.page, "2")).to_contain_text("put again")
            expect(one.page.get_by_role("button", name="Put dead letter 2 again")).to_have_count(0)
            expect(one.page.get_by_role("button", name="Put dead letter 0 again")).to_be_enabled()
        assert world.topic("orders").end == before + 1
        with world.open_subscriber("auditor") as auditor:
            (message,) = auditor.history("orders", before)
        assert (message.value, message.key) == (b'{"order": 2, "word": "three"}', b"key-0")
        assert message.headers == {"source": "three"}

    def test_is_put_again_with_the_others_of_its_page_after_a_confirmation(
        self, seen: Seen, world: Service
    ) -> None:
        with world.open_publisher("bulk") as publisher, world.open_subscriber("picky") as picky:
            picky.subscribe("bulk")
            publisher.put_many("bulk", [b"one", b"two", b"three"])
            for _ in range(3):
                (message,) = picky.get("bulk", timeout_s=PATIENCE_S)
                picky.reject(message, "not today")
        page = seen.go("letters", "bulk.dead")
        page.get_by_role("button", name="Put dead letter 1 again").click()
        expect(row(page, "1")).to_contain_text("was put again")

        page.get_by_role("button", name="Put all 2 again …").click()
        dialog = page.get_by_role("dialog", name="Put 2 dead letters again")
        expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
        assert world.topic("bulk").end == 4
        dialog.get_by_role("button", name="Do it").click()

        expect(page.get_by_text("2 dead letters are put again.")).to_be_visible()
        for letter in ("0", "1", "2"):
            expect(row(page, letter)).to_contain_text("was put again")
        expect(page.get_by_role("button", name="Put all")).to_have_count(0)
        assert world.payloads("bulk") == [b"one", b"two", b"three", b"two", b"one", b"three"]

    def test_is_not_offered_to_be_put_again_while_puts_are_paused(
        self, seen: Seen, world: Service
    ) -> None:
        page = seen.go("letters", "orders.dead")
        expect(page.get_by_role("button", name="Put dead letter 0 again")).to_be_visible()
        with Admin(endpoint=world.subscriber_endpoint) as admin:
            admin.pause()

            expect(row(page, "0")).to_contain_text("puts are paused")
            expect(page.get_by_role("button", name=re.compile("^Put "))).to_have_count(0)
            admin.resume()
        expect(page.get_by_role("button", name="Put dead letter 0 again")).to_be_visible()


@needs_browser
class TestAnAction:
    def test_is_shown_first_and_done_when_it_is_confirmed(self, seen: Seen, world: Service) -> None:
        with world.open_subscriber("leaving") as leaving:
            leaving.subscribe("other")
        page = seen.go("topic", "other", "readers")
        end = page.get_by_role("button", name="End leaving")
        end.click()
        dialog = page.get_by_role("dialog", name="End the subscription of leaving")
        expect(dialog).to_contain_text("This ends subscription 1 of leaving to other")
        expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()

        page.keyboard.press("Enter")
        expect(dialog).to_have_count(0)
        assert world.topic("other").subscriptions

        end.click()
        dialog.get_by_role("button", name="Do it").click()
        expect(page.get_by_text("Done, as action")).to_be_visible()
        expect(page.get_by_role("button", name="End leaving")).to_have_count(0)
        assert not world.topic("other").subscriptions

    def test_deletes_a_topic_after_a_confirmation_and_leaves_its_page(
        self, seen: Seen, world: Service
    ) -> None:
        with world.open_publisher("p") as publisher:
            publisher.put("deleted", b"x")
        page = seen.go("topic", "deleted")
        page.get_by_role("button", name="Delete …").click()
        dialog = page.get_by_role("dialog", name="Delete deleted")
        expect(dialog).to_contain_text("This deletes deleted with offsets 0 to 0")
        assert "deleted" in [one.topic for one in world.status().topics]
        dialog.get_by_role("button", name="Do it").click()

        expect(page.get_by_text(re.compile(r"Done, as action \d+: it deletes"))).to_be_visible()
        expect(page.get_by_role("treegrid")).to_contain_text("orders")
        assert "deleted" not in [one.topic for one in world.status().topics]

    def test_forgets_a_client_that_is_gone(self, seen: Seen, world: Service) -> None:
        with world.open_subscriber("gone") as gone:
            gone.subscribe("other")
        page = seen.go("clients", after="gon")
        page.get_by_role("button", name="Forget subscriber gone").click()
        expect(page.get_by_role("dialog")).to_contain_text("ends 1 subscription")
        page.get_by_role("button", name="Do it").click()

        expect(page.get_by_role("table", name="Clients")).to_contain_text("shop")
        expect(page.get_by_role("button", name="Forget subscriber gone")).to_have_count(0)

    def test_that_needs_a_place_asks_for_it_and_says_what_is_wrong_with_it(
        self, seen: Seen
    ) -> None:
        page = seen.go("topic", "orders", "readers")
        page.get_by_role("button", name="Move billing").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("textbox").fill("somewhere")
        dialog.get_by_role("textbox").press("Enter")

        expect(dialog.get_by_role("alert")).to_contain_text("says no place to begin")
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)

    def test_pauses_and_resumes_puts_and_every_page_says_so(self, seen: Seen) -> None:
        page = seen.go("slow")
        page.get_by_role("button", name="Pause …").click()
        page.get_by_role("textbox", name="Reason, shown to publishers").fill("a new disk")
        page.get_by_role("button", name="Look at what it does").click()
        expect(page.get_by_role("button", name="Cancel")).to_be_focused()
        page.get_by_role("button", name="Do it").click()
        expect(page.get_by_text("Puts are paused: a new disk.")).to_be_visible()

        page.get_by_role("button", name="Resume …").click()
        page.get_by_role("button", name="Do it").click()
        expect(page.get_by_text("Puts are paused")).to_have_count(0)


@needs_browser
def test_what_each_key_uses_stands_beside_its_bounds(tmp_path: Path, opened: Open) -> None:
    with KeyedService(tmp_path) as service:
        service.say_rights(
            sensor_1={"put": ["*"], "topics_max": 1, "stored_bytes_max": 5_000_000},
            operator={"status": ["*"], "admin": ["*"]},
        )
        service.add_key("operator")
        service.start_proxy("--secret-key", service.secret("proxy"), "--clients", service.known)
        own = service.reach(service.publisher_endpoint, "sensor-1")
        with service.open_publisher("sensor-1", endpoint=own) as publisher:
            publisher.put("readings", bytes(100_000))
        keys = (
            *("--secret-key", service.secret("operator")),
            *("--server-key", service.keys / "proxy.key"),
        )

        page = opened(link_of(start_console(service, *keys))).go("clients")

        table = page.get_by_role("table", name="Keys")
        rows = table.get_by_role("row")
        expect(rows.nth(1)).to_contain_text(re.compile(r"sensor-1.*clients.*1"))
        expect(rows.filter(has_text="topics")).to_contain_text(re.compile(r"1.*reached.*1"))
        expect(rows.filter(has_text="stored bytes")).to_contain_text(re.compile(r"100.kB.*5.*MB"))


@needs_browser
def test_what_the_key_may_not_do_is_said_in_a_sentence(tmp_path: Path, opened: Open) -> None:
    with KeyedService(tmp_path) as service:
        service.say_rights(
            sensor_1={"put": ["*"], "get": ["*"]}, viewer={"status": ["*"], "history": ["open"]}
        )
        service.add_key("viewer")
        service.start_proxy("--secret-key", service.secret("proxy"), "--clients", service.known)
        own = service.reach(service.publisher_endpoint, "sensor-1")
        with service.open_publisher("sensor-1", endpoint=own) as publisher:
            publisher.put("open", b"for all")
            publisher.put("closed", b"for some")
        keys = (
            "--secret-key",
            service.secret("viewer"),
            "--server-key",
            service.keys / "proxy.key",
        )
        seen = opened(link_of(start_console(service, *keys)))

        page = seen.go("topic", "open")
        expect(page.get_by_role("table", name="Messages")).to_contain_text("for all")
        page.get_by_role("button", name="Remove messages …").click()
        page.get_by_role("dialog").get_by_role("textbox").fill("now")
        page.get_by_role("button", name="Look at what it does").click()
        expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("admin")
        page.keyboard.press("Escape")
        seen.go("topic", "closed")
        expect(page.get_by_role("alert")).to_contain_text("history")


@needs_browser
def test_a_proxy_that_is_away_is_said_and_the_page_recovers(service: Service, opened: Open) -> None:
    service.start_proxy()
    with service.open_publisher("p") as publisher:
        publisher.put("before", b"1")
    soon = ("--ack-timeout", "2", "--send-retries", "1")
    seen = opened(link_of(start_console(service, options=soon)))
    page = seen.page
    expect(page.get_by_text("connected")).to_be_visible()

    service.proxy.kill()
    told = page.get_by_role("status").filter(has_text="The proxy does not answer")
    expect(told).to_contain_text("has not answered STATUS")  # in words of the page, not of commands
    expect(page.get_by_role("treegrid")).to_contain_text("before")  # what was seen stays
    seen.go("topic", "before", at="offset 0")
    expect(page.get_by_role("alert")).to_contain_text("has not answered HISTORY")

    service.start_proxy()
    with service.open_publisher("q") as publisher:
        publisher.put("after", b"1")
    expect(page.get_by_text("connected")).to_be_visible()
    expect(page.get_by_role("table", name="Messages")).to_contain_text("p_1")  # asked by its place
    seen.go()
    expect(page.get_by_role("treegrid")).to_contain_text("after")


@pytest.mark.long
@needs_browser
def test_ten_thousand_topics_are_searched_and_leafed_through(
    service: Service, opened: Open
) -> None:
    service.start_proxy()
    with service.open_publisher("p") as publisher:
        put_on_topics(publisher, [f"house.{n:05}" for n in range(10_000)])
    page = opened(link_of(start_console(service))).page

    expect(page.get_by_text("1 to 50 of 10,000")).to_be_visible()
    page.get_by_role("button", name="Further topics").click()
    expect(page.get_by_text("51 to 100 of 10,000")).to_be_visible()
    expect(page.get_by_role("treegrid")).to_contain_text("house.00099")
    assert page.get_by_role("treegrid").get_by_role("row").count() == 51
    page.get_by_role("searchbox", name="Search").fill("HOUSE.0987")
    expect(page.get_by_text("1 to 10 of 10")).to_be_visible()
    expect(page.get_by_role("treegrid")).to_contain_text("house.09879")


@needs_browser
class TestAScreenReader:
    def test_finds_a_name_for_everything_and_one_heading_at_the_top(self, seen: Seen) -> None:
        for path in (
            (),
            ("slow",),
            ("topic", "orders"),
            ("topic", "orders", "readers"),
            ("letters", "orders.dead"),
            ("letters",),
            ("clients",),
        ):
            seen.page.goto("about:blank")  # the next view may look like this one
            page = seen.go(*path)
            expect(page.get_by_role("heading", level=1)).to_have_count(1)
            expect(page.locator("table").first).to_be_visible()

            tree = page.locator("body").aria_snapshot()

            unnamed = re.findall(rf"(?m)^\s*- (?:{'|'.join(NAMED)})(?:\:| \[.*)?$", tree)
            assert not unnamed, tree
            for landmark in ("banner", "main", "navigation"):
                assert f"- {landmark}" in tree, path
            assert page.title().endswith("reliable-pubsub")

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_and_other_readers_can_tell_text_from_its_background(
        self, seen: Seen, scheme: Literal["light", "dark"]
    ) -> None:
        """WCAG 2.2, 1.4.3: 4.5 to 1."""
        page = seen.page
        page.emulate_media(color_scheme=scheme)
        expect(page.get_by_role("treegrid")).to_be_visible()

        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == "rgb({}, {}, {})".format(*PAGE[scheme])
        assert page.evaluate(CONTRAST) == []

    @pytest.mark.parametrize("width", [1280, 800, 390])
    def test_and_other_readers_need_not_scroll_sideways(self, seen: Seen, width: int) -> None:
        seen.page.set_viewport_size({"width": width, "height": 900})
        expect(seen.page.get_by_role("treegrid")).to_be_visible()
        for path in (
            (),
            ("topic", "orders"),
            ("topic", "orders", "readers"),
            ("letters", "orders.dead"),
        ):
            page = seen.go(*path)
            expect(page.locator("table").first).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= width

    def test_on_a_phone_finds_reason_payload_and_actions_on_the_screen(self, seen: Seen) -> None:
        seen.page.set_viewport_size({"width": 390, "height": 900})
        page = seen.go("letters", "orders.dead")
        letter = page.get_by_role("row").filter(has_text="no address").first
        for cell in (
            letter.get_by_text("no address"),
            letter.get_by_text('"order"'),
            letter.get_by_role("button"),
        ):
            box = cell.bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 390

        page = seen.go()
        expect(page.get_by_role("row").filter(has_text="display").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


class TestTheDoor:
    """Without a browser: what another site, another user or a mistake would send."""

    def ask(
        self, console: Process, method: str, path: str, body: str = "", **more: str
    ) -> tuple[int, str, dict[str, str]]:
        parts = urlsplit(link_of(console))
        token = parts.query.partition("=")[2]
        headers = {
            "Host": parts.netloc,
            "Cookie": f"reliable-pubsub-{parts.port}={token}",
            **{name.replace("_", "-"): value for name, value in more.items()},
        }
        connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, body or None, headers)
            response = connection.getresponse()
            return response.status, response.read().decode(), dict(response.getheaders())
        finally:
            connection.close()

    def test_lets_nothing_in_without_the_token(self, console: Process) -> None:
        for path in ("/", "/main.js", "/api/head", "/api/messages?topic=orders"):
            status, text, _ = self.ask(console, "GET", path, Cookie="reliable-pubsub=no")
            assert status == 401
            assert "open the link" in text
        assert self.ask(console, "GET", "/?token=wrong", Cookie="")[0] == 401

    def test_refuses_a_name_that_is_not_its_own(self, console: Process) -> None:
        """DNS rebinding: a page of evil.example whose name was made to point here."""
        assert self.ask(console, "GET", "/api/head", Host="evil.example")[0] == 421
        assert self.ask(console, "GET", "/api/head", Host="localhost:1")[0] == 200

    def test_refuses_changes_that_another_page_asks_for(
        self, console: Process, world: Service
    ) -> None:
        own = f"http://{urlsplit(link_of(console)).netloc}"
        body = json.dumps({"asked": {"action": "pause"}, "look": False})
        said = {"Origin": own, "Content_Type": "application/json"}

        for wrong in (
            {"Origin": "http://evil.example"},
            {"Origin": ""},
            {"Content_Type": "text/plain"},
        ):
            assert self.ask(console, "POST", "/api/act", body, **(said | wrong))[0] == 403
        assert self.ask(console, "POST", "/api/act", "x" * 70_000, **said)[0] == 413
        assert (
            self.ask(console, "POST", "/api/act", '{"asked":{"action":"format"}}', **said)[0] == 400
        )
        assert not isinstance(world.status().paused, str)

    def test_says_what_the_page_may_do_in_every_answer(self, console: Process) -> None:
        for path in ("/", "/style.css", "/api/head", "/none"):
            _, _, headers = self.ask(console, "GET", path)
            policy = headers["content-security-policy"]
            assert (
                "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'"
                in policy
            )
            assert headers["x-content-type-options"] == "nosniff"

    def test_answers_a_question_without_sense_with_a_sentence(self, console: Process) -> None:
        for path, status in (
            ("/api/message?topic=orders&offset=-1", 400),
            ("/api/message?topic=orders&offset=99999", 409),
            ("/api/messages?topic=%00&at=earliest", 400),
            ("/api/topics?first=x", 400),
            ("/api/letters?topic=none", 409),
        ):
            found, text, _ = self.ask(console, "GET", path)
            assert (path, found) == (path, status)
            assert json.loads(text)["text"]


def test_a_letter_whose_answer_was_lost_is_stored_once_when_it_is_asked_for_again(
    service: Service,
) -> None:
    service.start_proxy()
    fill(service)
    log = service.topic("orders.dead").log
    with losing_link(service.publisher_endpoint, answers=2) as link:  # to HELLO, twice; not to PUT
        access = ConsoleClients(service.subscriber_endpoint, link.endpoint, IMPATIENT)
        with pytest.raises(InDoubtError, match="it is stored once"):
            access.put_again("orders.dead", 0, log)
        assert link.is_losing
        assert service.topic("orders").end == len(FIVE) + 1
        link.heal()

        assert access.put_again("orders.dead", 0, log) is False
        assert [one.is_again for one in access.letters("orders.dead", "earliest", log)[1]] == [
            *(True, False, False)
        ]
        access.close()
    assert service.topic("orders").end == len(FIVE) + 1


def test_a_letter_that_is_put_again_while_puts_are_paused_is_refused_with_the_reason(
    service: Service,
) -> None:
    """Its state is not kept by the console, as that of a publisher is."""
    service.start_proxy()
    fill(service)
    log = service.topic("orders.dead").log
    access = ConsoleClients(service.subscriber_endpoint, service.publisher_endpoint, IMPATIENT)
    access.act(AskedAction(action="pause", reason="the disk is exchanged"), look=False)

    with pytest.raises(NotPossibleError) as refused:
        access.put_again("orders.dead", 0, log)
    access.close()

    assert "dead letter 0 was not put again" in str(refused.value)
    assert "the disk is exchanged" in str(refused.value)
    assert "is kept" not in str(refused.value)


def test_a_port_that_is_taken_and_an_open_network_are_refused_in_a_sentence(
    console: Process, world: Service
) -> None:
    taken = urlsplit(link_of(console)).netloc

    second = world.run("console", "--listen", taken)
    open_to_all = world.run("console", "--listen", "0.0.0.0:8080")

    assert second.wait() == open_to_all.wait() == 2
    assert "cannot be bound: Address already in use" in second.complaints
    assert "is not a loopback address" in open_to_all.complaints


def test_it_ends_cleanly_while_a_page_is_open(world: Service) -> None:
    console = start_console(world)
    TestTheDoor().ask(console, "GET", "/api/head")

    assert console.terminate() == 0
    assert not console.complaints
