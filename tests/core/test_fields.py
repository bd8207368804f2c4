"""What msgspec refuses is reported part by part, and never accepted because no part is at fault."""

from __future__ import annotations

import pytest
from msgspec import Struct

from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.fields import Problems, read
from reliable_pubsub.common.yaml_file import parse_yaml


class Range(Struct, forbid_unknown_fields=True):
    """A rule between two keys, each of which is right."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low is above high")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("low: 2\nhigh: 1", "x.yaml, line 1: low is above high"),
        ("low: 2\nhigh: x", "x.yaml, line 2, high: found 'x', expected a whole number"),
        ("low: 2", "x.yaml, line 1, high: found nothing, expected a whole number"),
        ("hihg: 1\nlow: 2\nhigh: 3", "x.yaml, line 1, hihg: found an unknown key, expected one of "
         "low, high; did you mean 'high'?"),
        ("[1]", "x.yaml, line 1: found a list of 1, expected a mapping with the keys low, high"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_smallest_part_that_is_at_fault(text: str, told: str) -> None:
    document = parse_yaml(text, "x.yaml")
    problems = Problems(document)

    assert read(problems, (), document.data, Range) is None
    with pytest.raises(ConfigurationError) as caught:
        problems.raise_if_any()
    assert str(caught.value) == told
