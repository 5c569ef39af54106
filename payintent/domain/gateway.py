"""The port to payment gateways: what we ask of them, and the words in which they answer.

Every outcome is a value. A gateway that cannot be reached or understood raises nothing: silence is
`Unknown`, never a failure, for the money may have moved.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

from payintent.domain.payment import FailureReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Credentials at one provider, the platform's or a merchant's; opened only to be used."""

    id: int
    provider: str
    base_url: str
    credentials: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """What a gateway is asked to collect: exactly the frozen quote."""

    session_id: UUID  # also the provider's idempotency key
    amount_minor: int
    currency: str
    description: str
    expires_at: datetime
    return_url: str
    callback_url: str
    locale: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRef:
    """A session as both sides name it; `reference` is missing while its creation is unanswered."""

    session_id: UUID
    reference: str | None


class SessionState(StrEnum):
    """The provider's word on one of its sessions."""

    OPEN = "open"  # waits for the buyer
    AUTHORISING = "authorising"  # the buyer is in the middle of it: must not be closed
    CAPTURED = "captured"  # money was taken
    DECLINED = "declined"  # ended without money
    CANCELLED = "cancelled"  # the buyer gave up at the gateway
    CLOSED = "closed"  # we closed it
    ABSENT = "absent"  # the provider does not know it


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """Money that a provider says it took."""

    reference: str  # the provider's own, unique within the account
    amount_minor: int
    currency: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a provider says of one session, by callback, inquiry or answer to a close."""

    state: SessionState
    capture: Capture | None = None
    reason: FailureReason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Created:
    """The session stands at the provider; `next_action` is what the buyer does now (api)."""

    reference: str
    next_action: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """The provider understood us and will not do it; nothing exists there."""

    detail: str  # for our logs, never for the merchant


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """No answer, or none that can be understood: it may have happened."""

    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackRequest:
    """A callback as it came: nothing is parsed before it is verified."""

    method: str
    headers: Mapping[str, str]  # names in lower case
    query: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback:
    """A verified callback. `id` is the provider's own name for it, for duplicates."""

    id: str
    session_id: UUID | None  # None: about nothing of ours
    report: Report | None  # None: nothing to do, such as a ping


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """What the provider wants to read when we have its callback."""

    body: bytes = b""
    content_type: str = "application/json"


class BadCallback(Exception):  # noqa: N818 - what came is bad, not we
    """A callback that is not signed by this account, too old, or cannot be read."""


class Gateway(Protocol):
    """One payment gateway. Calls end within 15 s; none is made inside a transaction."""

    provider: str

    async def create_session(
        self, account: Account, request: SessionRequest
    ) -> Created | Rejected | Unknown:
        """Open a session; a second call with the same id opens no second one."""
        ...

    async def close_session(self, account: Account, session: SessionRef) -> Report | Unknown:
        """Close a session if no money moved; the report tells what is true afterwards."""
        ...

    async def inquire(self, account: Account, session: SessionRef) -> Report | Unknown:
        """Ask what became of a session."""
        ...

    def parse_callback(self, account: Account, request: CallbackRequest) -> Callback:
        """Verify on the raw bytes, in constant time, then read. Raises `BadCallback`."""
        ...

    def acknowledge(self, callback: Callback) -> Ack:
        """Word the answer to a callback that is stored."""
        ...
