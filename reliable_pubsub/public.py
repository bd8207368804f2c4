"""Every public name: what `from reliable_pubsub import ...` finds."""

from .common.admin_client import Admin, AdminOutcome
from .common.core.batch import Message
from .common.core.errors import (
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
    StoppedError,
    TimedOutError,
    TooLargeError,
    TruncatedError,
    TryLaterError,
    UsageError,
)
from .common.core.message_base import Start
from .common.core.names import ExactTopic
from .common.core.pattern import Pattern, glob, prefix, regex
from .common.core.payload import Codec, typed
from .common.core.profiles import Billing, Command, Profile, Telemetry
from .common.core.retry import RetryPolicy
from .common.core.start import (
    Earliest,
    LastReceived,
    Now,
    Position,
    ago,
    at_offset,
    at_time,
    newest,
)
from .common.key_files import secure
from .publisher.client import Publisher
from .publisher.core.interests import InterestChange
from .publisher.core.qos0_puts import Interest
from .publisher.core.receipt import Delivery, Receipt
from .publisher.core.transaction import Transaction
from .subscriber.client import Subscriber
from .subscriber.core.reading import Reading
from .subscriber.qos_warning import QoSWarning

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
    "StoppedError",
    "Subscriber",
    "Telemetry",
    "TimedOutError",
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
