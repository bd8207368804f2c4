"""Every maximum in one place, with its unit, and the relations between them asserted.

A limit is part of the promise (P7): where one is reached, the client gets a named refusal.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

# Names.
CLIENT_ID_CHARS_MAX: Final = 64
TOPIC_BYTES_MAX: Final = 255

# The wire.
FRAMES_MAX: Final = 3  # protocol, header, body
HEADER_BYTES_MAX: Final = 256 * KIB
BODY_BYTES_MAX: Final = MIB  # an encoded batch, and the bodies of one reply together
FRAME_BYTES_MAX: Final = 4 * MIB  # above this ZeroMQ drops the peer before we see a byte
BATCH_MESSAGES_MAX: Final = 65_536
BATCH_OVERHEAD_BYTES_MAX: Final = 64  # what the encoding of a batch of one adds to its payload
PAYLOAD_BYTES_MAX: Final = BODY_BYTES_MAX - BATCH_OVERHEAD_BYTES_MAX
NONCE_BYTES_MAX: Final = 32
HELLO_TOPICS_MAX: Final = 256  # topics whose numbering one HELLO may ask for
REPLY_BATCHES_MAX: Final = 1000  # batches in one MESSAGE
STATUS_TOPICS_MAX: Final = 100  # topics in one page of STATUS
STATUS_ROWS_MAX: Final = 250  # subscriptions and publishers of one topic in STATUS, each
STATUS_PAGE_ROWS: Final = 500  # a page ends behind the topic that reaches this

# What one proxy holds.
TOPICS_MAX: Final = 10_000
SESSIONS_MAX: Final = 100_000  # client ids, publishers and subscribers together
SUBSCRIPTIONS_PER_TOPIC_MAX: Final = 10_000
PUBLISHERS_PER_TOPIC_MAX: Final = 10_000
CACHE_BYTES_MAX: Final = 32 * MIB  # newest bodies kept in memory for subscribers that keep up
HELD_REQUESTS_MAX: Final = 64  # REP sockets of one endpoint: requests waiting for one commit

# Numbers are signed 64-bit on disk.
NUMBER_MAX: Final = 2**63 - 1

# Files a person writes.
STEP_FILE_BYTES_MAX: Final = MIB
STEP_MESSAGES_MAX: Final = 1_000_000_000  # `number_of_times` of one step

assert PAYLOAD_BYTES_MAX < BODY_BYTES_MAX < FRAME_BYTES_MAX
assert HEADER_BYTES_MAX < FRAME_BYTES_MAX
# The longest HELLO still fits in a header: its topics, each with a few bytes of msgpack.
assert HELLO_TOPICS_MAX * (TOPIC_BYTES_MAX + 8) < HEADER_BYTES_MAX
# A row or a batch header is below 160 bytes, a topic in STATUS below 480.
assert REPLY_BATCHES_MAX * 160 < HEADER_BYTES_MAX
assert (STATUS_PAGE_ROWS + 2 * STATUS_ROWS_MAX) * 160 + STATUS_TOPICS_MAX * 480 < HEADER_BYTES_MAX
assert CACHE_BYTES_MAX >= 2 * BODY_BYTES_MAX
assert TOPICS_MAX < SESSIONS_MAX
