"""The faults that a seed may have, and how much of the seed is run.

Each seed switches whole classes of faults on or off ("swarm testing", Groce et al., ISSTA 2012):
a world in which everything fails at once never reaches the rare combinations of two faults.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import fields, replace

from reliable_pubsub.common.core.limits import NUMBER_MAX

MESSAGES_PER_PUT_MAX: Final = 5  # on one topic; no client puts more at once
FAULTS_S: Final = 1.2  # the network, the disk and the processes fail for this long


class Faults(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """The faults of one seed: chances for each message or process, rates in 1/s.

    The default of a field switches its class off.
    """

    # The link.
    drop_request: float = 0.0
    drop_reply: float = 0.0
    duplicate: float = 0.0  # a second copy of a request, soon
    echo: float = 0.0  # a copy just after its request, perhaps while that is being committed
    late: float = 0.0  # a copy that arrives up to `late_s` later, long after its sender is gone
    slow: float = 0.0  # a message is overtaken by others
    stray: float = 0.0  # the answer to a copy reaches the sender's present socket
    partition: float = 0.0  # rate: a client is cut off for a while
    half_open: float = 0.0  # rate: a client's requests arrive, the answers do not, for a while
    # The proxy and its disk.
    proxy_crash: float = 0.0  # chance that a life of the proxy ends early
    proxy_stop: float = 0.0  # rate: the proxy stands still for a while, and continues
    storage_full: float = 0.0  # rate
    commit_error: float = 0.0  # chance that a commit fails, its records durable or not
    slow_commits: bool = False
    clock_jump: float = 0.0  # rate
    standby: bool = False  # two proxies share a database; one serves
    database_cut: float = 0.0  # rate: one of them is cut off from it for a while
    proxy_cut: float = 0.0  # rate: one of them is cut off from all clients for a while
    trim: bool = False  # retention keeps nothing that all have acknowledged
    full: bool = False  # and puts are refused (FULL) while a topic holds `topic_bytes_max`
    lose_oldest: bool = False  # or the oldest are removed, and reported as LOST
    expire: bool = False  # or the slowest subscriptions are given up
    quota: bool = False  # the bound is `waiting_messages_max` of a subscription, not one of bytes
    rollback: bool = False  # once, the store is set back to an earlier durable copy
    keys: bool = False  # what is stored counts for keys
    # The clients.
    kill: float = 0.0  # chance that a life of a client ends early
    power_loss: float = 0.0  # chance that a kill is a power loss
    same_bytes: bool = False  # publishers make the same messages again, and may lose power too
    other_bytes: bool = False  # or make others, lose power, and end with CONFLICT
    set_back: float = 0.0  # chance that a kill of a publisher restores an older copy of its state
    equal_bytes: bool = False  # whatever a publisher puts once has the same content
    client_stop: float = 0.0  # rate: a client stands still for a while, and continues
    zombie: float = 0.0  # rate: a client stands still, is replaced, and continues
    interrupt: float = 0.0  # chance, at each step of a call, that a signal handler raises
    twin: float = 0.0  # chance that a second process with the same id begins with another
    no_state: float = 0.0  # chance that a client keeps its state in memory
    log_changed: float = 0.0  # chance that a client rewinds or adopts where others stop
    # Levels, places to begin at, sessions.
    put_qos_1: float = 0.0  # chance that a request of a publisher has QoS 1
    get_qos_1: float = 0.0  # chance that a subscriber has it
    start: float = 0.0  # chance that a subscribe says where to begin
    seek: float = 0.0  # chance that a subscriber begins elsewhere in the middle of its plan
    again: float = 0.0  # chance that one which says where begins there whatever it had
    truncated: bool = False  # a start may name what retention has removed
    out_of_range: bool = False  # or what is not there yet
    lease: float = 0.0  # chance that a subscription has a short lease
    clean: float = 0.0  # chance that it is a clean session
    get_waits: float = (
        0.0  # chance that a GET is content to wait, perhaps for longer than its sender
    )
    bye: float = 0.0  # chance, after each step, that a subscriber leaves, and comes back
    keep_alive: float = 0.0  # chance, before each get, that it only says that it lives
    loop: float = 0.0  # chance that a program without an output file loops over `messages`
    transaction: float = 0.0  # chance that a request of a publisher is one over both topics
    reject: float = 0.0  # chance, after each get, that the program gives a message up
    poison: float = 0.0  # chance, after each get, that the process dies of what it got
    max_deliveries: float = 0.0  # chance that a subscription gives up what comes again
    dead_limit: bool = False  # the proxy has no room for the topics of dead letters
    sink: bool = False  # a writer from many tasks, that runs batches again
    silence: float = 0.0  # rate: a subscriber stands still for longer than a lease
    operate: bool = False  # an operator acts
    forget: bool = False  # the proxy remembers next to nothing of what has ended
    group: bool = False  # members share a topic; they die, stall and come late
    pattern: bool = False  # a subscriber by pattern, whose topics may come later
    # At most once.
    put_qos_0: float = 0.0  # chance, before each request of a publisher, of one at QoS 0
    offer_lost: float = 0.0
    # Pushing.
    push: float = 0.0  # chance that a subscription is pushed
    push_lost: float = 0.0
    push_doubled: float = 0.0
    push_overtaken: float = 0.0
    push_late: float = 0.0  # a second copy, up to `late_s` later, of an older proxy perhaps
    push_foreign: float = 0.0  # the same offsets of another log or another start of the proxy
    push_cut: float = 0.0  # rate: no push comes to a client for a while
    push_switched: float = 0.0  # chance, before each get, of a change between push and poll

    late_s: float = 1.0
    life_points: int = 100  # a life that ends early ends within this many points
    topic_bytes_max: int = 2**32
    waiting_messages_max: int = NUMBER_MAX


_MEASURES: Final = ("late_s", "life_points", "topic_bytes_max", "waiting_messages_max")
CLASSES: Final = tuple(f.name for f in fields(Faults) if f.name not in _MEASURES)
_OFF: Final = Faults()


class Shape(Struct, frozen=True, kw_only=True):
    """How much of a seed is run; all of it, unless something is left out."""

    without: tuple[str, ...] = ()  # classes of faults that are switched off
    publishers: int | None = None  # at most this many
    subscribers: int | None = None
    messages: int | None = None  # at most this many of each publisher
    steps: int | None = None  # at most this many of each subscriber, before it gets what is left
    faults_s: float = FAULTS_S


def swarm(seed: int, chance: random.Random, shape: Shape) -> Faults:
    """Draw the faults of a seed.

    Pushing, transactions, QoS 0, quotas, interrupts and standbys are drawn apart: a seed without
    them is the world that it was.
    """

    faults = _drawn_together(chance)
    if not faults.rollback:
        faults = replace(faults, **_transacting(random.Random(f"transactions {seed}")))
        faults = replace(faults, **_offering(random.Random(f"offers {seed}")))
    faults = replace(faults, **_interrupting(random.Random(f"interrupts {seed}")))
    loops = random.Random(f"loop {seed}")
    faults = replace(faults, loop=loops.uniform(0.2, 0.9) if loops.random() < 0.5 else 0.0)
    faults = replace(faults, **_pushing(random.Random(f"push {seed}")))
    faults = replace(faults, **_waiting(random.Random(f"waits {seed}")))
    faults = replace(faults, **_bounding(random.Random(f"bounds {seed}"), faults))
    if faults.start or faults.seek:
        faults = replace(faults, again=random.Random(f"again {seed}").choice((0.0, 0.5, 1.0)))
    # Of two that live under one id the proxy cannot say which is the newer one, once it has
    # forgotten both; and `last` finds no place that is forgotten.
    is_judged = not (faults.zombie or faults.twin or faults.start or faults.seek)
    forgets = random.Random(f"forget {seed}").random() < 0.5
    faults = replace(faults, forget=is_judged and forgets)
    operates = random.Random(f"operate {seed}").random() < 0.2
    faults = replace(faults, operate=operates and not faults.rollback)
    if faults.reject or faults.max_deliveries:
        faults = replace(faults, dead_limit=random.Random(f"topics {seed}").random() < 0.3)
    faults = replace(faults, **_setting_back(random.Random(f"set back {seed}"), faults))
    faults = replace(faults, **_moving_the_expired(random.Random(f"expired {seed}"), faults))
    faults = replace(faults, **_standing_by(random.Random(f"standby {seed}"), faults))
    if not (faults.rollback or faults.lose_oldest or faults.expire):
        faults = replace(faults, group=random.Random(f"group {seed}").random() < 0.25)
        faults = replace(faults, pattern=random.Random(f"pattern {seed}").random() < 0.3)
    faults = replace(faults, keys=random.Random(f"charged {seed}").random() < 0.1)
    if faults.group:
        copies = random.Random(f"sent early copies {seed}")
        faults = replace(faults, echo=copies.choice((0.0, 0.0, 0.0, 0.5)))
    off = {name: getattr(_OFF, name) for name in shape.without}
    if off.keys() & {"trim", "full", "lose_oldest", "expire", "quota"}:
        off["topic_bytes_max"] = _OFF.topic_bytes_max
        off["waiting_messages_max"] = _OFF.waiting_messages_max
    return replace(faults, **off)


def _rate(chance: random.Random, highest: float) -> float:
    return chance.uniform(0.1, 1.0) * highest if chance.random() < 0.5 else 0.0


def _flag(chance: random.Random, probability: float) -> bool:
    return chance.random() < probability


def _drawn_together(chance: random.Random) -> Faults:
    """The faults that are drawn from one source, in this order, and what clients ask for."""
    rate, flag = partial(_rate, chance), partial(_flag, chance)
    rollback = flag(0.15)
    trim = flag(0.35) and not rollback
    bound = chance.choice(("", "full", "lose_oldest")) if trim else ""
    bytes_max = {"full": 400, "lose_oldest": 160}.get(bound)
    again = chance.choice(("", "same", "other"))
    faults = Faults(
        drop_request=rate(0.25),
        drop_reply=rate(0.25),
        duplicate=rate(0.3),
        late=rate(0.3),
        slow=rate(0.3),
        stray=rate(0.3),
        partition=rate(2.0),
        half_open=rate(2.0),
        proxy_crash=rate(1.0),
        proxy_stop=rate(2.0),
        storage_full=rate(2.0),
        commit_error=rate(0.03),
        slow_commits=flag(0.4),
        clock_jump=rate(3.0),
        trim=trim,
        full=bound == "full",
        lose_oldest=bound == "lose_oldest",
        rollback=rollback,
        kill=rate(0.9),
        power_loss=rate(0.9),
        same_bytes=again == "same" and not trim,
        other_bytes=again == "other",
        client_stop=rate(3.0),
        zombie=rate(4.0),
        twin=rate(0.5),
        no_state=rate(0.6),
        log_changed=rate(1.0) if rollback else 0.0,
        late_s=chance.choice((0.2, 0.6, 1.5)),
        life_points=chance.choice((15, 50, 100, 100)),
        topic_bytes_max=chance.randint(80, bytes_max) if bytes_max else _OFF.topic_bytes_max,
    )
    if rollback:
        # A client whose own state is older too, or that has a twin which the set-back proxy takes
        # for the right one, has nothing to notice the change by.
        return replace(faults, power_loss=0.0, zombie=0.0, twin=0.0)
    # A proxy that was set back has no word of levels, places and sessions.
    return replace(faults, **_promises(rate, flag, trim=trim))


def _bounding(chance: random.Random, faults: Faults) -> dict[str, float]:
    """Bounds of what waits for one subscription, and subscriptions that expire at a bound."""
    if not faults.trim:
        return {}
    bound: dict[str, float] = {}
    if not faults.full and not faults.lose_oldest and chance.random() < 0.5:
        bound = {"expire": True, "topic_bytes_max": chance.randint(80, 400)}
    if (bound or faults.full or faults.lose_oldest) and chance.random() < 0.5:
        bound |= {
            "quota": True,
            "waiting_messages_max": chance.randint(MESSAGES_PER_PUT_MAX, 15),
            "topic_bytes_max": _OFF.topic_bytes_max,
        }
    return bound


def _setting_back(chance: random.Random, faults: Faults) -> dict[str, float]:
    """Whose state is set back, in a fifth of the seeds.

    There plans make the same messages again, nothing is removed that a comparison needs,
    and the proxy remembers.
    """
    if faults.rollback or faults.trim or faults.other_bytes or chance.random() >= 0.2:
        return {}
    return {
        "set_back": chance.uniform(0.3, 1.0),
        "same_bytes": True,
        "equal_bytes": chance.random() < 0.7,
        "kill": max(faults.kill, 0.5),
    }


def _standing_by(chance: random.Random, faults: Faults) -> dict[str, float]:
    """A second proxy, in a seventh of the seeds; then the one that serves stands still often."""
    if faults.rollback or chance.random() >= 0.15:
        return {}
    rate = partial(_rate, chance)
    return {
        "standby": True,
        "database_cut": rate(4.0),
        "proxy_cut": rate(2.0),
        "proxy_stop": max(faults.proxy_stop, chance.uniform(0.5, 3.0)),
    }


def _moving_the_expired(chance: random.Random, faults: Faults) -> dict[str, float]:
    """Late copies of a SUB that said where to begin, which find its subscription expired.

    By chance alone these come together in one seed of several thousand.
    """
    if not faults.expire or faults.forget or chance.random() >= 0.7:
        return {}
    return {
        "start": max(faults.start, 0.7),
        "seek": max(faults.seek, 0.6),
        "late": 0.8,
        "late_s": 1.5,
        "silence": 4.0,
    }


def _transacting(chance: random.Random) -> dict[str, float]:
    """Who stores several topics at once: publishers, and a sink, in a quarter of the seeds each."""
    transacts = chance.uniform(0.1, 1.0) if chance.random() < 0.25 else 0.0
    return {"transaction": transacts, "sink": chance.random() < 0.25}


def _offering(chance: random.Random) -> dict[str, float]:
    """Whether publishers also put at QoS 0, in a quarter of the seeds."""
    if chance.random() >= 0.25:
        return {}
    lost = chance.uniform(0.05, 0.4) if chance.random() < 0.5 else 0.0
    return {"put_qos_0": chance.uniform(0.2, 1.0), "offer_lost": lost}


def _interrupting(chance: random.Random) -> dict[str, float]:
    """Whether calls are broken off by signal handlers that raise, in a quarter of the seeds."""
    return {"interrupt": chance.uniform(0.003, 0.05)} if chance.random() < 0.25 else {}


def _waiting(chance: random.Random) -> dict[str, float]:
    """Whether GETs wait at the proxy, in half of the seeds."""
    return {"get_waits": chance.uniform(0.2, 1.0)} if chance.random() < 0.5 else {}


def _pushing(chance: random.Random) -> dict[str, float]:
    """Whether subscribers are pushed to, and which faults the pushes have."""
    if chance.random() >= 0.4:
        return {}
    rate = partial(_rate, chance)
    return {
        "push": chance.uniform(0.3, 1.0),
        "push_lost": rate(0.4),
        "push_doubled": rate(0.4),
        "push_overtaken": rate(0.4),
        "push_late": rate(0.4),
        "push_foreign": rate(0.4),
        "push_cut": rate(3.0),
        "push_switched": rate(0.2),
    }


def _promises(
    rate: Callable[[float], float], flag: Callable[[float], bool], *, trim: bool
) -> dict[str, float]:
    """The additional features that clients use, in some of the seeds."""
    asked: dict[str, float] = {}
    if flag(0.3):
        asked |= {"put_qos_1": rate(1.0), "get_qos_1": rate(1.0)}
    if flag(0.4):
        asked |= {
            "start": rate(1.0),
            "seek": rate(1.0),
            "truncated": trim and flag(0.5),
            "out_of_range": flag(0.3),
        }
    if flag(0.4):
        asked |= {
            "lease": rate(1.5),
            "clean": rate(1.0),
            "bye": rate(0.1),
            "keep_alive": rate(0.3),
            "silence": rate(3.0),
        }
    if flag(0.3):
        asked |= {"reject": rate(0.4), "poison": rate(0.3), "max_deliveries": rate(1.0)}
    return asked
