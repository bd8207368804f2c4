"""SQLite's write-ahead log (WAL) and the header of its index: bytes in, values out.

The WAL is a header and then frames, each a page with a header of its own. Every checksum is
computed over its frame and the checksum before it, so the frames are a chain. A frame with
`database_pages` is the last one of a transaction.
Source: sqlite.org/walformat.html, sections 1 and 2; sqlite.org/fileformat2.html, section 1.6.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, Literal

from msgspec import Struct

from .rows import OFFSET_BITS

HEADER_BYTES: Final = 32
FRAME_HEADER_BYTES: Final = 24
INDEX_BYTES: Final = 96  # only the two headers of the index are read

Order = Literal["<", ">", "="]  # of the bytes in the words that a checksum adds up
Checksum = tuple[int, int]

_VERSION: Final = 3_007_000
_ORDERS: Final[dict[int, Order]] = {0x377F0682: "<", 0x377F0683: ">"}
_WORD: Final = 0xFFFF_FFFF
_PAGE_BYTES: Final = frozenset(1 << power for power in range(9, 17))
_TABLE_LEAF: Final = 13  # first byte of a page with rows


class WalHeader(Struct, frozen=True):
    """How to read the frames; `salts` change each time the WAL is reset."""

    page_bytes: int
    salts: bytes
    order: Order
    checksum: Checksum

    @property
    def frame_bytes(self) -> int:
        """A page with its header."""
        return FRAME_HEADER_BYTES + self.page_bytes


class Frame(Struct, frozen=True, gc=False):
    """One page as a transaction wrote it."""

    number: int  # of the page
    database_pages: int  # not 0: the transaction is committed
    salts: bytes
    checksum: Checksum
    checked: bytes  # the part of its header that the checksum covers
    page: bytes


class IndexMark(Struct, frozen=True):
    """What the index says was committed; it is updated after each commit."""

    frames: int
    checksum: Checksum  # of the last of them
    salts: bytes


def add_up(data: bytes, seed: Checksum, order: Order) -> Checksum:
    """SQLite's checksum of `data`, a multiple of 8 bytes, on top of another one."""
    first, second = seed
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for one, two in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & _WORD
        second = (second + two + first) & _WORD
    return first, second


def checksum_of(frame: Frame, seed: Checksum, order: Order) -> Checksum:
    """The checksum of a frame that follows one with the checksum `seed`."""
    return add_up(frame.page, add_up(frame.checked, seed, order), order)


def parse_header(data: bytes) -> WalHeader | None:
    """Parse the header of a WAL; None if it is damaged."""
    if len(data) < HEADER_BYTES:
        return None
    magic, version, page_bytes, _, salts, first, second = struct.unpack(">IIII8sII", data[:32])
    order = _ORDERS.get(magic)
    if order is None or version != _VERSION or page_bytes not in _PAGE_BYTES:
        return None
    if add_up(data[:24], (0, 0), order) != (first, second):
        return None
    return WalHeader(page_bytes, salts, order, (first, second))


def parse_frame(data: bytes) -> Frame:
    """Parse a frame without checking it."""
    number, pages, salts, first, second = struct.unpack_from(">II8sII", data)
    return Frame(number, pages, salts, (first, second), data[:8], data[FRAME_HEADER_BYTES:])


def parse_index(data: bytes) -> IndexMark | None:
    """Parse an index; return the newest of its two marks that is undamaged, or None.

    The second mark is written first; a process that dies in between leaves two different marks.
    """
    for begin in (48, 0):
        one = data[begin : begin + 48]
        if len(one) < 48:
            continue
        version, frames, *frame_checksum, salts, first, second = struct.unpack(
            "=I12xI4xII8sII", one
        )
        if version == _VERSION and add_up(one[:40], (0, 0), "=") == (first, second):
            return IndexMark(frames, (frame_checksum[0], frame_checksum[1]), salts)
    return None


def batches_in(page: bytes) -> Iterator[tuple[int, int]]:
    """Topic number and first offset of the batches whose rows begin in a page, if it holds any.

    The page may be damaged: rows that cannot be parsed are left out.
    """
    if page[0] != _TABLE_LEAF:
        return
    (cells,) = struct.unpack_from(">H", page, 3)
    for cell in range(min(cells, (len(page) - 8) // 2)):
        (place,) = struct.unpack_from(">H", page, 8 + 2 * cell)
        _, after = _varint(page, place)  # the size of the row
        key, _ = _varint(page, after)
        if key >> OFFSET_BITS:  # the keys of other tables are small
            yield key >> OFFSET_BITS, key & ((1 << OFFSET_BITS) - 1)


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A varint of up to nine bytes, and the position after it."""
    value = 0
    for byte in data[place : place + 8]:
        place += 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place
    return value << 8 | (data[place] if place < len(data) else 0), place + 1
