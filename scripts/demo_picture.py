"""A run of the demo as an animated SVG: each line is shown from the moment it was there.

Lines that differ are elements of their own, hidden and shown by one animation each (SMIL,
discrete, all of the same length, so they stay together over repeats). Text is set on a grid, so any
monospaced font will do. With less motion asked for, or none possible, the last frame is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import Final

from msgspec import Struct
from rich.console import Console, RenderableType

COLUMNS: Final = 92
HOLD_S: Final = 8.0  # the last frame stays so long
_CELL_WIDTH, _LINE_HEIGHT, _MARGIN = 7.8, 17, 14
_STYLE: Final = """
text { font: 13px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  white-space: pre; fill: #24292f }
rect { fill: #f6f8fa; stroke: #d0d7de }
.title { font-weight: 600 } .red { fill: #cf222e; font-weight: 700 } .green { fill: #116329 }
.still { display: none }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } rect { fill: #161b22; stroke: #30363d }
  .red { fill: #ff7b72 } .green { fill: #7ee787 }
}
@media (prefers-reduced-motion: reduce) { .moving { display: none } .still { display: inline } }
"""

Span = tuple[str, str]  # text, and the class of its look
Line = tuple[Span, ...]


class Frame(Struct, frozen=True):
    """What is on the screen from a moment on."""

    at_s: float
    lines: tuple[Line, ...]


def frame_of(at_s: float, *shown: RenderableType) -> Frame:
    """Render what a terminal would show."""
    console = Console(width=COLUMNS, color_system="truecolor", force_terminal=True, file=None)
    lines: list[Line] = []
    for one in shown:
        for segments in console.render_lines(one, pad=False):
            spans = [(piece.text, _look(str(piece.style or ""))) for piece in segments]
            joined = groupby(spans, key=lambda span: span[1])
            lines.append(tuple(("".join(text for text, _ in some), look) for look, some in joined))
    return Frame(at_s, tuple(lines))


def _look(style: str) -> str:
    return next((word for word in ("red", "green") if word in style), "")


class _Shown(Struct, frozen=True):
    """A line at its row, from one moment to another."""

    row: int
    line: Line
    begin_s: float
    end_s: float


def _spells(frames: Sequence[Frame], end_s: float) -> list[_Shown]:
    """When each line is where; what does not change is one spell."""
    ends = [frame.at_s for frame in frames[1:]] + [end_s]
    rows = max(len(frame.lines) for frame in frames)
    spells: list[_Shown] = []
    for row in range(rows):
        seen = [
            (frame.lines[row] if row < len(frame.lines) else (), frame.at_s, end)
            for frame, end in zip(frames, ends, strict=True)
        ]
        for line, some in groupby(seen, key=lambda one: one[0]):
            times = list(some)
            if any(text.strip() for text, _ in line):
                spells.append(_Shown(row, line, times[0][1], times[-1][2]))
    return spells


def _text(row: int, line: Line, inner: str = "") -> str:
    """One line on the grid; spaces at its begin are its place."""
    whole = "".join(text for text, _ in line).rstrip()
    indent = len(whole) - len(whole.lstrip())
    spans = [(text, look) for text, look in line if text]
    parts, at = [], 0
    for text, look in spans:
        kept = text[max(indent - at, 0) : max(len(whole) - at, 0)]
        at += len(text)
        if kept:
            parts.append(f'<tspan class="{look}">{escape(kept)}</tspan>' if look else escape(kept))
    x, y = _MARGIN + indent * _CELL_WIDTH, _MARGIN + (row + 1) * _LINE_HEIGHT - 4
    length = (len(whole) - indent) * _CELL_WIDTH
    return (
        f'<text x="{x:.1f}" y="{y}" textLength="{length:.1f}" lengthAdjust="spacingAndGlyphs">'
        f"{''.join(parts)}{inner}</text>"
    )


def _animated(spell: _Shown, end_s: float) -> str:
    begin, end = (
        f"{at / end_s:.4f}".rstrip("0").rstrip(".") for at in (spell.begin_s, spell.end_s)
    )
    lasts = spell.end_s >= end_s
    values, times = ["visible"], ["0"]
    if spell.begin_s > 0:
        values, times = ["hidden", "visible"], ["0", begin]
    if not lasts:
        values, times = [*values, "hidden"], [*times, end]
    motion = (
        f'<animate attributeName="visibility" values="{";".join(values)}" '
        f'keyTimes="{";".join(times)}" dur="{end_s:g}s" calcMode="discrete" '
        'repeatCount="indefinite"/>'
    )
    text = _text(spell.row, spell.line, motion if len(values) > 1 else "")
    return text if lasts else text.replace("<text ", '<text visibility="hidden" ', 1)


def picture_of(frames: Sequence[Frame], *, title: str) -> str:
    """All of a run, over and over."""
    end_s = round(frames[-1].at_s + HOLD_S, 1)
    rows = max(len(frame.lines) for frame in frames)
    width = round(COLUMNS * _CELL_WIDTH + 2 * _MARGIN)
    height = rows * _LINE_HEIGHT + 2 * _MARGIN
    still = [
        _text(row, line) for row, line in enumerate(frames[-1].lines) if any(t for t, _ in line)
    ]
    moving = [_animated(spell, end_s) for spell in _spells(frames, end_s)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" xml:space="preserve">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style>",
            f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="6"/>',
            '<g class="moving">', *moving, "</g>",
            '<g class="still">', *still, "</g>", "</svg>", "",
        ]
    )  # fmt: skip
