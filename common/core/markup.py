"""Markup as a tree of elements; all text is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree.ElementTree import Element, tostring

Child = Element | str | None

# Control characters, lone surrogates, and marks that change the direction of text.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def element(tag: str, *children: Child, **attributes: str | float) -> Element:
    """An element. `class_` and `data_m` become the attributes `class` and `data-m`."""
    made = Element(
        tag,
        {name.rstrip("_").replace("_", "-"): _value(value) for name, value in attributes.items()},
    )
    extend(made, children)
    return made


def extend(parent: Element, children: Iterable[Child]) -> None:
    """Append elements and texts; None is skipped."""
    for child in children:
        if isinstance(child, Element):
            parent.append(child)
        elif child and len(parent):
            parent[-1].tail = (parent[-1].tail or "") + printable(child)
        elif child:
            parent.text = (parent.text or "") + printable(child)


def printable(text: str) -> str:
    """The text without characters that a page must not contain."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def number(value: float) -> str:
    """A coordinate: one decimal is a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def shortened(text: str, length_max: int) -> str:
    """The text, or its beginning and end with an ellipsis between them."""
    if len(text) <= length_max:
        return text
    tail = length_max // 3
    return f"{text[: length_max - tail - 1]}…{text[-tail:]}"


def html_text(root: Element) -> str:
    """A whole page."""
    return f"<!DOCTYPE html>\n{tostring(root, encoding='unicode', method='html')}\n"


def _value(value: str | float) -> str:
    return printable(value) if isinstance(value, str) else number(value)
