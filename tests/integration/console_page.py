"""A console as tests use it: started, filled with what the page must show, opened in a browser."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from playwright.sync_api import Browser, Page, ViewportSize

from reliable_pubsub import Publisher

from .harness import BELIEVING_OPTIONS, PATIENCE_S, Process, Service

SIZE: Final[ViewportSize] = {"width": 1280, "height": 900}
HOSTILE_TOPIC = "<img src=x onerror=alert(1)>\u202egnp.exe"
HOSTILE = b"<script>alert(1)</script>\x1b[31mred\x1b[0m \xe2\x80\xae\xe2\x80\x8b"
PILED_UP = "".join(map(chr, range(0x300, 0x340)))  # marks above and below a letter
FIVE = ("one", "two", "three", "four", "five")


def start_console(
    service: Service, *more: str | Path, options: Sequence[str] = BELIEVING_OPTIONS
) -> Process:
    """Start a console; its ready line ends with its address."""
    console = service.run(
        "console",
        *("--listen", "127.0.0.1:*", *options[:4], *more),
        *("--endpoint", str(service.subscriber_endpoint)),
        *("--publisher-endpoint", str(service.publisher_endpoint)),
    )
    console.ready()
    return console


def link_of(console: Process) -> str:
    return console.ready().split()[-1]


def fill(service: Service) -> None:
    """Orders, of which three are dead letters, a slow reader, and what an attacker would put."""
    with service.open_publisher("shop") as shop, service.open_subscriber("billing") as billing:
        billing.subscribe("orders")
        for number, word in enumerate(FIVE):
            order = json.dumps({"order": number, "word": word}).encode()
            shop.put("orders", order, key=b"key-%d" % (number % 2), headers={"source": word})
        for message in billing.get("orders", max_messages=3):
            billing.reject(message, f"no address \x1b[2J {message.offset}")
        shop.put("other", b"\xff\x00\x01")
        shop.put(HOSTILE_TOPIC, HOSTILE, key=HOSTILE, headers={"<b>": "</pre><script>alert(2)"})
    with service.open_subscriber("display") as display:
        display.subscribe("orders", lease_s=3600)


def put_on_topics(publisher: Publisher, topics: list[str]) -> None:
    """One message on each, 250 topics in a commit."""
    for first in range(0, len(topics), 250):
        with publisher.transaction() as transaction:
            for topic in topics[first : first + 250]:
                transaction.put(topic, b"x")


# What has a name in the tree of a screen reader.
NAMED: Final = ("button", "link", "textbox", "searchbox", "combobox", "table", "treegrid", "dialog")

# Texts whose contrast is below 4.5 to 1.
CONTRAST: Final = """() => {
  const light = (color) => {
    const [r, g, b] = color.match(/[\\d.]+/g).slice(0, 3)
      .map((one) => one / 255)
      .map((one) => (one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const back = (node) => {
    const color = getComputedStyle(node).backgroundColor;
    return /, 0\\)$/.test(color) && node.parentElement ? back(node.parentElement) : color;
  };
  const poor = [];
  for (const node of document.querySelectorAll("body *")) {
    const hasText = [...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim());
    if (!hasText || node.disabled || !node.checkVisibility()) continue;
    const both = [light(getComputedStyle(node).color), light(back(node))];
    const [dark, bright] = both.sort((a, b) => a - b);
    const ratio = (bright + 0.05) / (dark + 0.05);
    if (ratio < 4.5) poor.push(`${node.localName}.${node.className} ${node.textContent}: ${ratio}`);
  }
  return poor;
}"""


class Seen:
    """A page, and what must never happen on it."""

    def __init__(self, browser: Browser, link: str) -> None:
        self.context = browser.new_context(viewport=SIZE)
        self.context.set_default_timeout(PATIENCE_S * 1000)
        self.page: Page = self.context.new_page()
        self.faults: list[str] = []
        self.asked: list[str] = []
        self.base = link.split("?")[0]
        self.page.on("dialog", lambda dialog: self._fault(f"dialog: {dialog.message}"))
        self.page.on("pageerror", lambda error: self._fault(f"error: {error}"))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(link)

    def _fault(self, text: str) -> None:
        self.faults.append(text)

    def go(self, *names: str, **said: str) -> Page:
        """Go to a view."""
        query = "&".join(f"{name}={quote(value)}" for name, value in said.items())
        self.page.goto(f"{self.base}#/{'/'.join(quote(one, safe='') for one in names)}?{query}")
        return self.page

    def close(self) -> None:
        self.context.close()
        self.check()

    def check(self) -> None:
        """Nothing of it has happened."""
        assert self.faults == []
        assert {urlsplit(url).netloc for url in self.asked} == {urlsplit(self.base).netloc}
