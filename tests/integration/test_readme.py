"""The Python of the README, and of the page that it leads to, runs as it is printed."""

from __future__ import annotations

import re
import sys
import textwrap

from .harness import REPOSITORY, Service


def blocks(page: str) -> list[str]:
    return re.findall(r"(?ms)^```python\n(.*?)^```", (REPOSITORY / page).read_text("utf-8"))


(FIRST,) = blocks("README.md")
LIBRARY, STARTS, HANDLERS, GROUPS, ASYNCIO = blocks("docs/start/python.md")
BOTH_OPEN = """
from reliable_pubsub import Publisher, Subscriber
publisher, subscriber = Publisher("p"), Subscriber("s")
publisher.put("topic1", b"before")
"""


def what_it_prints(service: Service, program: str) -> str:
    """Run a program as a person would who has a proxy at these ports."""
    settings = (
        f"RELIABLE_PUBSUB_PUBLISHER_ENDPOINT={service.publisher_endpoint}",
        f"RELIABLE_PUBSUB_SUBSCRIBER_ENDPOINT={service.subscriber_endpoint}",
    )
    process = service.run_command("program", ["env", *settings, sys.executable, "-c", program])
    process.done()
    return process.stdout


def as_program(block: str) -> str:
    """A block that awaits, as an asyncio program."""
    body = textwrap.indent(block, "    ")
    return f"import asyncio\nasync def main():\n{body}\nasyncio.run(main())"


def test_the_python_of_the_readme_runs_as_it_is_printed(service: Service) -> None:
    service.start_proxy()

    assert what_it_prints(service, FIRST) == "0 b'hello'\n"
    assert re.fullmatch(r"sensor-1\S* 10\d\d\d\n", what_it_prints(service, LIBRARY))
    assert what_it_prints(service, BOTH_OPEN + STARTS) == ""
    assert what_it_prints(service, HANDLERS) == "Order(id=7)\n"
    assert what_it_prints(service, GROUPS) == "b'resize 7.png' 1\n"
    assert what_it_prints(service, as_program(ASYNCIO)) == "b'7'\n"


def test_the_first_program_of_the_readme_has_six_lines() -> None:
    assert len([line for line in FIRST.splitlines() if line]) == 6
