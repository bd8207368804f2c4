"""Presets for common work: `profile: billing` in a step file, `Billing` in the library.

publisher.put("invoices", body, **Billing.putting)
subscriber.subscribe("invoices", **Billing.subscribing)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypedDict

from msgspec import Struct

from .arguments import check_fields
from .message_base import LeaseS, QoS, SessionKind


class PutKeywords(TypedDict):
    """Keywords of `Publisher.put`."""

    qos: QoS


class SubscribeKeywords(TypedDict):
    """Keywords of `Subscriber.subscribe`."""

    qos: QoS
    session: SessionKind
    lease_s: float | None
    push: bool


class Profile(Struct, frozen=True, kw_only=True):
    """The guarantees for a kind of message."""

    name: str
    use: str  # what it is for
    qos: QoS = 2
    session: SessionKind = "persistent"
    lease_s: LeaseS | None = None
    push: bool = False

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def putting(self) -> PutKeywords:
        """The keywords of `Publisher.put`."""
        return PutKeywords(qos=self.qos)

    @property
    def subscribing(self) -> SubscribeKeywords:
        """The keywords of `Subscriber.subscribe`."""
        return SubscribeKeywords(
            qos=self.qos, session=self.session, lease_s=self.lease_s, push=self.push
        )


NO_PROFILE: Final = Profile(name="", use="what a step has that names none")
Telemetry: Final = Profile(
    name="telemetry",
    use="readings, where the next one replaces one that is lost",
    qos=0,
    session="clean",
    lease_s=60.0,
    push=True,
)
Command: Final = Profile(
    name="command",
    use="work to be done soon, by a handler that tolerates repeats",
    qos=1,
    push=True,
)
Billing: Final = Profile(name="billing", use="money: nothing may be lost or repeated")
PROFILES: Final[Mapping[str, Profile]] = {one.name: one for one in (Telemetry, Command, Billing)}
