"""A run as a page: a lane for each process, an arrow for each request and answer. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from .plan import BROKER
from .telling import JUDGE, RunEvent

LANE_PX: Final = 190
ROW_PX: Final = 30
TOP_PX: Final = 60
STYLE: Final = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem }
svg { font: 13px ui-monospace, monospace; overflow: visible } .scroll { overflow-x: auto }
line { stroke: #7788; } .arrow { stroke: #27c; stroke-width: 2 } .lost { stroke: #c22 }
text { fill: currentColor; text-anchor: middle }
.fault { fill: #c22; font-weight: bold; paint-order: stroke; stroke: Canvas; stroke-width: 4px }
.time { fill: #888; text-anchor: start }
"""


def page_of(title: str, lines: Sequence[str], events: Sequence[RunEvent]) -> str:
    """Return a page that needs no network."""
    names = sorted({one.who for one in events} - {JUDGE})
    before = [name for name in names if name.startswith("p")]
    lanes = [*before, BROKER, *(name for name in names if name not in before)]
    at = {name: 120 + LANE_PX * place for place, name in enumerate(lanes)}
    width, height = 60 + LANE_PX * len(lanes), TOP_PX + ROW_PX * (len(events) + 1)
    drawn = "\n".join((*_lanes(at, height), *_arrows(at, events)))
    said = "".join(f"<p>{escape(line)}</p>" for line in lines)
    return (
        f"<!DOCTYPE html><html lang='en'><meta charset='utf-8'><title>{escape(title)}</title>"
        "<meta name='viewport' content='width=device-width'>"
        f"<style>{STYLE}</style><h1>{escape(title)}</h1>{said}<div class='scroll'>"
        f"<svg role='img' aria-label='arrows between clients and broker' width='{width}' "
        f"height='{height}'><defs><marker id='tip' orient='auto' refX='9' refY='4' markerWidth='9' "
        "markerHeight='8' markerUnits='userSpaceOnUse'><path d='M0,0 L9,4 L0,8 z' fill='#27c'/>"
        f"</marker></defs>{drawn}</svg></div></html>\n"
    )


def _lanes(at: dict[str, int], height: int) -> Iterator[str]:
    for name, x in at.items():
        yield f"<text x='{x}' y='24' font-weight='bold'>{escape(name)}</text>"
        yield f"<line x1='{x}' y1='34' x2='{x}' y2='{height}'/>"


def _arrows(at: dict[str, int], events: Sequence[RunEvent]) -> Iterator[str]:
    broker, asking = at[BROKER], ""
    for row, one in enumerate(events):
        y = TOP_PX + ROW_PX * row
        yield f"<text class='time' x='0' y='{y}'>{one.at_s:.3f} s</text>"
        if one.who == JUDGE:
            if "answer" in one.does and asking:  # it leaves the broker, and ends halfway
                end = (broker + at[asking]) // 2
                yield f"<line class='arrow lost' x1='{broker}' y1='{y}' x2='{end}' y2='{y}'/>"
                yield f"<text class='fault' x='{end}' y='{y + 5}'>✗</text>"
            yield f"<text class='fault' x='{broker}' y='{y - 6}'>{escape(one.does)}</text>"
            continue
        asking = "" if one.is_answer else one.who
        ends = (broker, at[one.who]) if one.is_answer else (at[one.who], broker)
        yield (
            f"<line class='arrow' x1='{ends[0]}' y1='{y}' x2='{ends[1]}' y2='{y}' "
            "marker-end='url(#tip)'/>"
        )
        middle = (broker + at[one.who]) // 2
        yield f"<text x='{middle}' y='{y - 6}'>{escape(one.does)}</text>"
