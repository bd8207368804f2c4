"""Frames are counted right however the bytes of a connection are cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reliable_pubsub.lab.core.zmtp_frames import GREETING_BYTES, FrameCounter

GREETING = b"\xff" + bytes(GREETING_BYTES - 1)


def frame(size: int, *, is_command: bool = False) -> bytes:
    flags = 0x04 if is_command else 0
    if size > 255:
        return bytes([flags | 0x02]) + size.to_bytes(8, "big") + bytes(size)
    return bytes([flags, size]) + bytes(size)


@given(
    st.lists(st.tuples(st.integers(0, 600), st.booleans()), max_size=20),
    st.lists(st.integers(1, 400), max_size=60),
)
def test_frames_of_messages_are_counted_and_commands_are_not(
    frames: list[tuple[int, bool]], cuts: list[int]
) -> None:
    data = GREETING + b"".join(frame(size, is_command=command) for size, command in frames)
    counter = FrameCounter()
    place = 0
    for cut in [*cuts, len(data)]:
        counter.feed(data[place : place + cut])
        place += cut

    assert counter.frames == sum(not command for _, command in frames)
    assert counter.bytes == len(data)
