"""Names on a terminal: no character is unseen, and none turns those beside it."""

from __future__ import annotations

import pytest

from reliable_pubsub.common.core.visible import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain and café 日本 🔑", "plain and café 日本 🔑"),
        ("pay\u202etxt.exe", "payU+202Etxt.exe"),
        ("a\u200bb\u2066c", "aU+200BbU+2066c"),
        ("\x1b[31mred\x9b", "U+001B[31mredU+009B"),
        ("\u115f\u3164\u2800", "U+115FU+3164U+2800"),
        ("\U000e0041\ue000\u2028", "U+E0041U+E000U+2028"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
    ],
)
def test_characters_that_are_not_seen_or_that_turn_others_are_shown_as_codes(
    text: str, shown: str
) -> None:
    assert visible(text) == shown
