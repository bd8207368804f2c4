"""What the audit files get from the engine: refusals, and what operators did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reliable_pubsub.common.access.core.authorisation import Denial

from .access.quotas import Quotas
from .core.engine import Engine
from .extension import Extension, Surroundings
from .operators.history import Administration, Deed


class Auditing(Extension):
    """Writes outputs of the engine to the files of the authentication."""

    def __init__(self, at: Surroundings) -> None:
        self._authentication = at.authentication

    def parts(self) -> Sequence[object]:
        """Let quotas count the connections of keys."""
        return (Quotas(self._authentication.connections),)

    def outputs(self) -> Mapping[type[Any], Callable[[Any], None]]:
        """Write them."""
        return {Denial: self._authentication.refused, Deed: self._done}

    def begin(self, engine: Engine) -> None:
        """Write what a process was killed before, between storing and writing it."""
        if actions := engine.state.part(Administration).newest.values():
            written = self._authentication.actions_log.numbers()
            for one in actions:
                if one.number not in written:
                    self._done(Deed(one))

    def _done(self, deed: Deed) -> None:
        self._authentication.actions_log.done(deed.fields, deed.record.at_ns)
