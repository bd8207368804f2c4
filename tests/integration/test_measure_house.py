"""The tool that says how large the code is runs, and sees client and proxy."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from scripts import measure_house


def test_it_names_what_a_put_and_a_get_pass_in_client_and_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measure_house, "ROUNDS", 3)

    ran = CliRunner().invoke(measure_house.main, ["--names"], catch_exceptions=False)

    assert ran.exit_code == 0, ran.output
    assert re.search(r"product +\d\d,\d{3} lines in \d+ files", ran.output)
    assert re.search(r"The longest function: \d+ lines, \w+ in \w+/", ran.output)
    put, get = ran.output[ran.output.index("put  all") :].split("get  all")
    for passed in ("Publisher.put", "Engine._decide", "Store.commit"):
        assert re.search(rf"(?m)  {re.escape(passed)}$", put), put
    for passed in ("Subscriber.get", "Engine._decide"):
        assert re.search(rf"(?m)  {re.escape(passed)}$", get), get
