"""The warning that messages have a lower QoS than their subscription requested."""

from __future__ import annotations

import sys
import warnings
from itertools import takewhile
from traceback import walk_stack

from .core.fetching import lower_qos_in_words


class QoSWarning(UserWarning):
    """Messages have a lower QoS than their subscription requested."""


def warn_of_lower_qos(topic: str, publisher: str, qos: int) -> None:
    frames = (frame.f_globals["__name__"] for frame, _ in walk_stack(sys._getframe()))
    ours = sum(1 for _ in takewhile(lambda name: name.startswith("reliable_pubsub."), frames))
    warnings.warn(lower_qos_in_words(topic, publisher, qos), QoSWarning, stacklevel=ours + 1)
