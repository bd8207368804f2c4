"""Every public name: what `from reliable_pubsub import ...` finds."""

from typing import TYPE_CHECKING

from reliable_pubsub.common.core.patterns.pattern import Pattern, glob, prefix, regex

from .common.admin_client import Admin, AdminOutcome
from .common.core.batch import Batch, Message
from .common.core.errors import (
    ConfigurationError,
    ConflictError,
    DamagedError,
    DeadLetterRefusedError,
    DeniedError,
    DescriptorsError,
    FencedError,
    ForkedError,
    InDoubtError,
    InUseError,
    InvalidNameError,
    InvalidPatternError,
    LeaseLostError,
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
    SettledInDoubtError,
    StageLostError,
    StaleError,
    StoppedError,
    StorageFailedError,
    TimedOutError,
    TooLargeError,
    TruncatedError,
    TryLaterError,
    TwoProxiesError,
    UsageError,
)
from .common.core.message_base import Start
from .common.core.names import ExactTopic
from .common.core.payload import Codec, typed
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
from .publisher.core.receipt import Delivery, Receipt
from .publisher.interests.core.interests import InterestChange
from .publisher.qos0.core.qos0_puts import Interest
from .publisher.transactions.core.transaction import Transaction
from .subscriber.client import Subscriber
from .subscriber.core.reading import Reading
from .subscriber.qos_warning import QoSWarning

if TYPE_CHECKING:  # the package imports it when it is needed, because it loads asyncio
    from . import aio as aio

__all__ = [
    "Admin",
    "AdminOutcome",
    "Batch",
    "Codec",
    "ConfigurationError",
    "ConflictError",
    "DamagedError",
    "DeadLetterRefusedError",
    "Delivery",
    "DeniedError",
    "DescriptorsError",
    "Earliest",
    "ExactTopic",
    "FencedError",
    "ForkedError",
    "InDoubtError",
    "InUseError",
    "Interest",
    "InterestChange",
    "InvalidNameError",
    "InvalidPatternError",
    "LastReceived",
    "LeaseLostError",
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
    "ProxyUnreachableError",
    "PubSubError",
    "Publisher",
    "QoSWarning",
    "Reading",
    "Receipt",
    "RefusedError",
    "RetryPolicy",
    "SettledInDoubtError",
    "StageLostError",
    "StaleError",
    "Start",
    "StoppedError",
    "StorageFailedError",
    "Subscriber",
    "TimedOutError",
    "TooLargeError",
    "Transaction",
    "TruncatedError",
    "TryLaterError",
    "TwoProxiesError",
    "UsageError",
    "ago",
    "aio",
    "at_offset",
    "at_time",
    "glob",
    "newest",
    "prefix",
    "regex",
    "secure",
    "typed",
]
