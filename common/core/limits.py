"""Every maximum in one place, with its unit, and the relations between them asserted.

Limits are part of the promises (P7): at a limit the client gets a named refusal.
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
FRAME_BYTES_MAX: Final = 4 * MIB  # above this ZeroMQ drops the peer before we see any of it
BATCH_MESSAGES_MAX: Final = 65_536
BATCH_OVERHEAD_BYTES_MAX: Final = 64  # what encoding a batch of one adds to its payload
PAYLOAD_BYTES_MAX: Final = BODY_BYTES_MAX - BATCH_OVERHEAD_BYTES_MAX
NONCE_BYTES_MAX: Final = 32
DELIVERIES_MAX: Final = 1000  # `max_deliveries` of a subscription
REASON_CHARS_MAX: Final = 1000  # of a dead letter
DELIVERY_SUBSCRIBERS_MAX: Final = 2000  # of a topic whose deliveries can be asked for
LEASE_MS_MAX: Final = 30 * 86_400_000  # of a subscription: 30 days
PATTERNS_PER_CLIENT_MAX: Final = 32  # that a subscriber may have
PATTERNS_MAX: Final = 1000  # different ones of all subscribers of a proxy
GROUP_WINDOW_MAX: Final = (
    10_000  # from the oldest message of a group that has not ended to the newest taken
)
GROUP_MEMBERS_MAX: Final = 1000
GROUP_OUTCOMES_MAX: Final = 4096  # in one TAKE or SETTLE, none of which has a reason
GROUP_REASONS_MAX: Final = 10  # of rejections, in one TAKE or SETTLE
GROUP_GRANTS_MAX: Final = 1000  # stretches of messages in one TAKEN
FETCH_TOPICS_MAX: Final = 200  # whose cursors one FETCH has, and that one FETCHED shows
FETCH_BATCHES_MAX: Final = 800  # batches of all topics in one FETCHED
HELLO_TOPICS_MAX: Final = 256  # topics whose numbering one HELLO may ask for
REPLY_BATCHES_MAX: Final = 1000  # batches in one MESSAGE
STATUS_TOPICS_MAX: Final = 100  # topics in one page of STATUS
STATUS_ROWS_MAX: Final = 250  # subscriptions and publishers of one topic in STATUS, each
STATUS_ACCOUNTS_MAX: Final = 64  # keys whose quotas STATUS and metrics show
STATUS_PAGE_ROWS: Final = 500  # a page ends after the topic that reaches this
SUBSCRIPTIONS_ROWS_MAX: Final = 200  # in one page of SUBSCRIPTIONS
SUBSCRIPTIONS_STEPS_MAX: Final = 100_000  # of matching and counting, after which a page ends

# What one proxy holds. The first four are settings, and these are their defaults.
TOPICS_MAX: Final = 10_000
SESSIONS_MAX: Final = 100_000  # client ids, publishers and subscribers together
SUBSCRIPTIONS_PER_TOPIC_MAX: Final = 10_000  # that have not ended
PUBLISHERS_PER_TOPIC_MAX: Final = 10_000
CHOSEN_TOPICS_MAX: Final = 60_000  # an operator may choose; topic numbers have 16 bits
CHOSEN_MAX: Final = 10_000_000  # of the other three; each costs about 200 bytes of memory
IDLE_SESSIONS_MAX: Final = 10_000  # ids kept without a subscription or a number
ENDED_MAX: Final = 10_000  # ended subscriptions of a topic whose cursor is kept
ENDED_CLEAN_MAX: Final = 100  # the same of clean sessions, so that clients get the reason
UNNUMBERED_MAX: Final = 1000  # publishers of a topic at QoS 1, for STATUS only
EPOCH_STEP_MAX: Final = 2**20  # how far above the current epoch one HELLO may ask
CACHE_BYTES_MAX: Final = 32 * MIB  # newest bodies kept in memory for subscribers that keep up
RING_BYTES_MAX: Final = 2 * MIB  # of what was put on one topic at QoS 0
RINGS_BYTES_MAX: Final = 32 * MIB  # of all topics together; the oldest goes first
HELD_REQUESTS_MAX: Final = 512  # that wait for a commit before puts stop being read
WAITING_GETS_MAX: Final = 10_000  # GETs that wait for messages; further ones are answered at once
WAIT_MS_MAX: Final = 30_000  # how long a GET may ask to wait

# Transactions: what is staged is in memory until its COMMIT.
TRANSACTION_BYTES_MAX: Final = 128 * MIB  # staged for one transaction
STAGED_BYTES_MAX: Final = 256 * MIB  # for all transactions, unless an operator sets it
STAGED_BATCH_BYTES: Final = KIB  # what a staged batch counts in addition to its body
STAGED_IDLE_S_MAX: Final = 3600  # a transaction that is idle for longer is dropped
TRANSACTION_TASKS_MAX: Final = 4096  # in one COMMIT
TRANSACTION_TOPICS_MAX: Final = 256  # in one COMMIT

# Interest: what a peer of the push tree may ask for.
PATTERN_CHARS_MAX: Final = 255
PATTERN_STATES_MAX: Final = 512  # of the automaton of a glob or regex; bounds the time of a match
PATTERN_STEPS_MAX: Final = 8_192  # links between them that are made; bounds the time to build it
INTEREST_STEPS_MAX: Final = 4_096  # of the automata of one set; beyond, everything is sent
INTEREST_TURN_STEPS: Final = (
    64  # of reading sets, in one turn; what one costs more, later turns pay
)
CONSUMER_STATES_MAX: Final = 2_048  # of one consumer's automata; beyond, it is sent everything
TABLE_STATES_MAX: Final = 32_768  # of the automata of all consumers of a node; beyond, the same
TABLE_PATTERNS_MAX: Final = 16_384  # different ones of all consumers of a node; beyond, the same
SINGLY_MAX: Final = 128  # consumers that are sent copies of their own; beyond, the same
MATCH_STEPS_MAX: Final = 10_000  # of matching, in one turn; undecided consumers get the message
COMPARE_STEPS_MAX: Final = 50_000  # of comparing patterns, for one request
NESTING_MAX: Final = 16  # brackets in brackets, in a regex and in a predicate
PREDICATE_CHARS_MAX: Final = 512
PREDICATE_TESTS_MAX: Final = 64
OVERLAP_STEPS_MAX: Final = 10_000  # of finding whether two patterns share a topic
INTEREST_PATTERNS_MAX: Final = 128  # in one set; with more, the consumer gets everything
RELAYS_BELOW_MAX: Final = 256  # relays whose interest one set carries
CONSUMERS_MAX: Final = 10_000  # peers whose interest one node keeps
LINK_BYTES: Final = 16  # random name of a link
PUSH_BODY_BYTES_MAX: Final = 64 * KIB  # a longer body is fetched; only its offset is pushed
INGRESS_PATTERNS_MAX: Final = 1024  # announced to QoS 0 publishers; beyond, they send all

# What untrusted peers can make an endpoint of a proxy or relay hold (docs/decisions/0026).
CONNECTIONS_MAX: Final = 20_000  # of a process; the default of a setting
UNHEARD_BYTES_MAX: Final = 10 * MIB  # of one connection, sent and not taken as messages
UNHEARD_BYTES_MAX_TOGETHER: Final = 64 * MIB  # of all connections of a process
CALM_BYTES_MAX: Final = 8 * MIB  # connections that hold at most this much cause no growth
GROWTH_BYTES_MAX: Final = 32 * MIB  # of a process while they can hold more; above, they are cut off
HELD_BYTES_MAX: Final = 64 * MIB  # what those can hold that are left then
FREED_BYTES_MIN: Final = 16 * MIB  # of growth that is given back when it is calm again
STALLED_CONNECTIONS_MAX: Final = 8  # that do not read what is sent to them, of a process
PUSH_FRAME_BYTES_MAX: Final = 512  # what a peer sends to a push endpoint: a subscription
PREFIX_BYTES: Final = 32  # what a plain ZeroMQ subscription counts in addition to its length
PREFIX_BYTES_MAX: Final = 16 * KIB  # of one connection's subscriptions
# Of all. Libzmq uses about 100 times as much, and walks all of it when a connection closes.
PREFIX_BYTES_MAX_TOGETHER: Final = 64 * KIB
SAID_BYTES_MAX: Final = 16 * KIB  # by one connection on a push endpoint, at once
SAID_BYTES_PER_S: Final = KIB  # and from then on
SAID_BYTES_MAX_IN_DEBT: Final = 2 * KIB  # by one connection while the bound of all is exceeded
SAID_BYTES_MAX_TOGETHER: Final = 128 * KIB  # by all connections of a push endpoint, at once
SAID_BYTES_PER_S_TOGETHER: Final = 64 * KIB
CONNECTION_BYTES: Final = KIB  # what a new connection counts in addition to what it sends
PUSH_RECEIVE_BUFFER_BYTES: Final = 1 * KIB  # of a connection, in the kernel
PUSH_WAITING_CONNECTIONS_MAX: Final = 16  # that libzmq has not taken in; others ask again in 1 s

# Numbers are signed 64-bit on disk.
NUMBER_MAX: Final = 2**63 - 1

# Actions of operators.
PAUSE_REASON_CHARS_MAX: Final = 200  # why puts are paused
ACTIONS_KEPT: Final = 1_000  # the newest; a copy of an older one is recognised by its number

# Files written by users.
STEP_FILE_BYTES_MAX: Final = MIB
STEP_MESSAGES_MAX: Final = 1_000_000_000  # `number_of_times` of one step

assert PAYLOAD_BYTES_MAX < BODY_BYTES_MAX < FRAME_BYTES_MAX
assert HEADER_BYTES_MAX < FRAME_BYTES_MAX
# The longest HELLO still fits in a header: its topics, each with a few bytes of msgpack.
assert HELLO_TOPICS_MAX * (TOPIC_BYTES_MAX + 8) < HEADER_BYTES_MAX
# The longest FETCH and FETCHED: names, log ids of 64 characters, numbers.
assert FETCH_TOPICS_MAX * (TOPIC_BYTES_MAX + 24) < HEADER_BYTES_MAX
assert FETCH_TOPICS_MAX * (TOPIC_BYTES_MAX + 128) + FETCH_BATCHES_MAX * 160 < HEADER_BYTES_MAX
# What is settled, with the reasons, and what is granted.
assert GROUP_OUTCOMES_MAX * 40 + GROUP_REASONS_MAX * 4 * REASON_CHARS_MAX < HEADER_BYTES_MAX
assert REPLY_BATCHES_MAX * 160 + GROUP_GRANTS_MAX * 24 + GROUP_OUTCOMES_MAX * 16 < HEADER_BYTES_MAX
# A row or a batch header is below 160 bytes, a topic in STATUS below 480, a key below 768.
assert REPLY_BATCHES_MAX * 160 < HEADER_BYTES_MAX
assert (
    (STATUS_PAGE_ROWS + 2 * STATUS_ROWS_MAX) * 160
    + STATUS_TOPICS_MAX * 480
    + STATUS_ACCOUNTS_MAX * 768
) < HEADER_BYTES_MAX
# A row of SUBSCRIPTIONS: a pattern of 4 bytes a character, a group, numbers.
assert (
    SUBSCRIPTIONS_ROWS_MAX * (4 * PATTERN_CHARS_MAX + CLIENT_ID_CHARS_MAX + 40) < HEADER_BYTES_MAX
)
# DELIVERED names every subscriber once, each with a few bytes of msgpack.
assert DELIVERY_SUBSCRIBERS_MAX * (CLIENT_ID_CHARS_MAX + 8) < HEADER_BYTES_MAX
# A topic fits in a pattern, and its automaton in the states; the fullest set fits in a header.
assert TOPIC_BYTES_MAX <= PATTERN_CHARS_MAX < PATTERN_STATES_MAX
assert (
    INTEREST_PATTERNS_MAX * (4 * PATTERN_CHARS_MAX + 80)
    + RELAYS_BELOW_MAX * (CLIENT_ID_CHARS_MAX + 3)
    < HEADER_BYTES_MAX
)
# So do the longest COMMIT and its receipts, each entry with its numbers.
assert TRANSACTION_TASKS_MAX * (NONCE_BYTES_MAX + 24) < HEADER_BYTES_MAX
assert TRANSACTION_TOPICS_MAX * (TOPIC_BYTES_MAX + 80) < HEADER_BYTES_MAX
assert BODY_BYTES_MAX < TRANSACTION_BYTES_MAX <= STAGED_BYTES_MAX
assert CACHE_BYTES_MAX >= 2 * BODY_BYTES_MAX
assert BODY_BYTES_MAX < RING_BYTES_MAX < RINGS_BYTES_MAX
assert TOPICS_MAX < SESSIONS_MAX
assert TOPIC_BYTES_MAX + 2 < PUSH_FRAME_BYTES_MAX < PREFIX_BYTES_MAX < PREFIX_BYTES_MAX_TOGETHER
assert SAID_BYTES_MAX_IN_DEBT < SAID_BYTES_MAX < SAID_BYTES_MAX_TOGETHER
assert 2 * PUSH_FRAME_BYTES_MAX < SAID_BYTES_MAX_IN_DEBT  # a handshake and a subscription fit
assert 4 * (HEADER_BYTES_MAX + BODY_BYTES_MAX) <= UNHEARD_BYTES_MAX
assert UNHEARD_BYTES_MAX < UNHEARD_BYTES_MAX_TOGETHER
assert CALM_BYTES_MAX < FREED_BYTES_MIN < GROWTH_BYTES_MAX < HELD_BYTES_MAX
assert IDLE_SESSIONS_MAX < SESSIONS_MAX
