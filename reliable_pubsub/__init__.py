"""Reliable publish/subscribe on ZeroMQ: messages that arrive exactly once.

    from reliable_pubsub import Publisher, Subscriber

The rooms (common, proxy, publisher, subscriber) stand beside this folder and are linked into it.
"""

import logging
import platform
from pathlib import Path

if platform.system() == "Windows":  # asked so, because type checkers would skip what follows
    raise ImportError(
        "reliable_pubsub needs what Linux and macOS have, and Windows has not: there, run it in "
        "WSL (`wsl --install`), with its Python"
    )

_here = Path(__file__).parent
if not (_here / "common").is_dir():  # a checkout without symbolic links
    __path__.append(str(_here.parent))

logging.getLogger(__name__).addHandler(logging.NullHandler())  # silent, until a program listens

from reliable_pubsub.common.admin_client import Admin, AdminOutcome  # noqa: E402
from reliable_pubsub.common.core.batch import Message  # noqa: E402
from reliable_pubsub.common.core.errors import (  # noqa: E402
    ConfigurationError,
    ConflictError,
    DamagedError,
    DeadLetterRefusedError,
    DeniedError,
    FencedError,
    ForkedError,
    InDoubtError,
    InUseError,
    InvalidNameError,
    LimitError,
    LogChangedError,
    LostError,
    MalformedError,
    NotDeliveredError,
    NotPossibleError,
    NotSubscribedError,
    OutOfRangeError,
    PayloadError,
    ProxyUnreachableError,
    PubSubError,
    RefusedError,
    StageLostError,
    TooLargeError,
    TruncatedError,
    TryLaterError,
    UsageError,
)
from reliable_pubsub.common.core.message_base import Start  # noqa: E402
from reliable_pubsub.common.core.names import ExactTopic  # noqa: E402
from reliable_pubsub.common.core.pattern import Pattern, glob, prefix, regex  # noqa: E402
from reliable_pubsub.common.core.payload import Codec, typed  # noqa: E402
from reliable_pubsub.common.core.profiles import Billing, Command, Profile, Telemetry  # noqa: E402
from reliable_pubsub.common.core.retry import RetryPolicy  # noqa: E402
from reliable_pubsub.common.core.start import (  # noqa: E402
    Earliest,
    LastReceived,
    Now,
    Position,
    ago,
    at_offset,
    at_time,
    newest,
)
from reliable_pubsub.common.key_files import secure  # noqa: E402
from reliable_pubsub.publisher.client import Publisher  # noqa: E402
from reliable_pubsub.publisher.core.interests import InterestChange  # noqa: E402
from reliable_pubsub.publisher.core.qos0_puts import Interest  # noqa: E402
from reliable_pubsub.publisher.core.receipt import Delivery, Receipt  # noqa: E402
from reliable_pubsub.publisher.core.transaction import Transaction  # noqa: E402
from reliable_pubsub.subscriber.client import Subscriber  # noqa: E402
from reliable_pubsub.subscriber.core.reading import Reading  # noqa: E402
from reliable_pubsub.subscriber.qos_warning import QoSWarning  # noqa: E402

__all__ = [
    "Admin",
    "AdminOutcome",
    "Billing",
    "Codec",
    "Command",
    "ConfigurationError",
    "ConflictError",
    "DamagedError",
    "DeadLetterRefusedError",
    "Delivery",
    "DeniedError",
    "Earliest",
    "ExactTopic",
    "FencedError",
    "ForkedError",
    "InDoubtError",
    "InUseError",
    "Interest",
    "InterestChange",
    "InvalidNameError",
    "LastReceived",
    "LimitError",
    "LogChangedError",
    "LostError",
    "MalformedError",
    "Message",
    "NotDeliveredError",
    "NotPossibleError",
    "NotSubscribedError",
    "Now",
    "OutOfRangeError",
    "Pattern",
    "PayloadError",
    "Position",
    "Profile",
    "ProxyUnreachableError",
    "PubSubError",
    "Publisher",
    "QoSWarning",
    "Reading",
    "Receipt",
    "RefusedError",
    "RetryPolicy",
    "StageLostError",
    "Start",
    "Subscriber",
    "Telemetry",
    "TooLargeError",
    "Transaction",
    "TruncatedError",
    "TryLaterError",
    "UsageError",
    "ago",
    "at_offset",
    "at_time",
    "glob",
    "newest",
    "prefix",
    "regex",
    "secure",
    "typed",
]
