"""Text as a terminal may show it: characters that are not seen, or that turn others, as codes.

The console does the same in the browser (`console/page/dom.js`).
"""

from __future__ import annotations

import unicodedata
from typing import Final

# Controls, marks of direction and joiners, separators of lines, private use, lone surrogates.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Zl", "Zp", "Co", "Cs"})
_FILLERS: Final = "\u115f\u1160\u2800\u3164\uffa0"  # letters and symbols without ink


def visible(text: str, *, kept: str = "\n\t") -> str:
    """Return the text with such characters as `U+202E`.

    Args:
        kept: those that stay; line ends and tabs are our own, except in the text of a stranger.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_code(one) if _is_unseen(one) and one not in kept else one for one in text)


def _is_unseen(char: str) -> bool:
    return unicodedata.category(char) in _UNSEEN or char in _FILLERS


def _code(char: str) -> str:
    return f"U+{ord(char):04X}"
