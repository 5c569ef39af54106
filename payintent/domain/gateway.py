"""The port to payment gateways: what we ask of them, and the words in which they answer.

Every outcome is a value: done, pending, declined, not contacted or unknown. A gateway that cannot
be reached or understood raises nothing. Silence is `OutcomeUnknown`, never a failure, for the
money may have moved; only a request that surely never left is `NotContacted`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

from payintent.domain.payment import FailureReason


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayAccount:
    """Credentials at one provider, the platform's or a merchant's; opened only to be used."""

    id: int
    provider: str
    base_url: str
    credentials: Mapping[str, str] = field(repr=False)

    @property
    def page_url(self) -> str:
        """Say where the provider's pages live, if not where its API does."""
        return self.credentials.get("page_url") or self.base_url


class RefundSupport(StrEnum):
    """How much of a capture a gateway gives back."""

    NONE = "none"
    WHOLE = "whole"  # all of it, once
    PARTS = "parts"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayCapabilities:
    """What a gateway can do, known without asking it."""

    credentials: frozenset[str]  # names of what an account must hold
    #: Decimals that it counts each currency in; another currency is not taken. None: it counts any
    #: as the offer does.
    decimals: Mapping[str, int] | None
    countries: frozenset[str] | None = None  # None: all
    refunds: RefundSupport = RefundSupport.PARTS
    #: A refund may be sent again under its id, and is done once. Where not, it is sent only once.
    refund_is_idempotent: bool = True
    #: Where its API, its pages and its scripts live: an account's addresses are at one of these.
    origins: frozenset[str] = frozenset()
    #: Its sessions are opened and inquired over the network, and buyers' share of that is bounded.
    remote: bool = True
    callback_bytes_max: int = 16 * 1024  # no genuine callback is larger


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySessionRequest:
    """What a gateway is asked to collect: exactly the frozen quote.

    Amounts are in the currency's minor units as we count them (`domain/currencies.py`), also where
    the gateway counts in others: an adapter converts, and is only asked for what it can hold
    exactly.
    """

    session_id: UUID  # also the provider's idempotency key
    amount_minor: int
    currency: str
    kind: str  # of the payment method: card, redirect, qr
    country: str
    description: str
    opened_at: datetime
    expires_at: datetime
    return_url: str
    callback_url: str
    locale: str | None = None
    payer_email: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySessionRef:
    """A session as both sides name it, and what it is for.

    `reference` is missing while its creation is unanswered.
    """

    session_id: UUID
    reference: str | None
    amount_minor: int
    currency: str
    opened_at: datetime


class GatewaySessionState(StrEnum):
    """The provider's word on one of its sessions."""

    OPEN = "open"  # waits for the buyer
    AUTHORISING = "authorising"  # the buyer is in the middle of it: must not be closed
    ATTEMPTED = "attempted"  # an attempt was declined, the buyer may try again: by callback only
    CAPTURED = "captured"  # money was taken
    DECLINED = "declined"  # ended without money
    CANCELLED = "cancelled"  # the buyer gave up at the gateway
    CLOSED = "closed"  # we closed it
    ABSENT = "absent"  # the provider does not know it


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """Money that a provider says it took; in our minor units."""

    reference: str  # the provider's own, unique within the account
    amount_minor: int  # rounded down where the provider's amount is finer
    currency: str  # as the provider says it; not always one that we ask for
    #: The provider's own amount and currency, where minor units cannot hold them exactly.
    verbatim: str | None = None

    def equals(self, amount_minor: int, currency: str) -> bool:
        """Tell whether this is exactly so much."""
        exact = self.verbatim is None
        return exact and (self.amount_minor, self.currency) == (amount_minor, currency)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReport:
    """What a provider says of one session, by callback, inquiry or answer to a close."""

    state: GatewaySessionState
    capture: Capture | None = None
    reason: FailureReason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCreated:
    """The session stands at the provider; `next_action` is what the buyer does now (api)."""

    reference: str
    next_action: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRejected:
    """The provider understood us and will not do it; nothing exists there."""

    detail: str  # for our logs, never for the merchant


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeUnknown:
    """No answer, or none that can be understood: it may have happened."""

    detail: str
    #: The provider holds us back: it is there, though it may have done nothing.
    throttled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NotContacted(OutcomeUnknown):
    """Nothing was sent, so that it surely has not happened: it may be tried again, or dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayRefundRequest:
    """What is to be given back of a capture, or what was asked for before."""

    refund_id: UUID  # also the provider's idempotency key, where it has such
    reference: str | None  # the provider's own name for the refund, once it told one
    session: GatewaySessionRef | None  # None: money that came for no session
    capture: Capture
    amount_minor: int
    reason: str
    destination: str | None  # where the money goes, if that is not where it came from
    callback_url: str


class GatewayRefundState(StrEnum):
    """The provider's word on a refund."""

    DONE = "done"
    PENDING = "pending"
    DECLINED = "declined"  # it will not be done: nothing was given back
    ABSENT = "absent"  # the provider does not know it


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundReport:
    """What a provider says of one refund, by answer, callback or inquiry."""

    state: GatewayRefundState
    reference: str | None = None
    detail: str = ""  # for our logs, never for the merchant
    hopeless: bool = False  # to send it again would end the same way: a person must look


class DisputeState(StrEnum):
    """How far a dispute of money is, at the provider."""

    INQUIRY = "inquiry"  # a bank asks; the money may still be refunded
    OPEN = "open"  # an answer of the merchant is awaited
    UNDER_REVIEW = "under_review"  # it was answered, and the bank decides
    WON = "won"  # the money stays
    LOST = "lost"  # the buyer has it back
    CLOSED = "closed"  # an inquiry that came to nothing


class DisputedFunds(StrEnum):
    """What the provider has done with the money meanwhile."""

    UNTOUCHED = "untouched"
    WITHDRAWN = "withdrawn"  # from the account
    REINSTATED = "reinstated"


@dataclass(frozen=True, slots=True, kw_only=True)
class DisputeReport:
    """What a provider says of one dispute, by callback; amounts in our minor units."""

    reference: str  # the provider's own, unique within the account
    capture: str  # the reference of the money that is disputed
    state: DisputeState
    funds: DisputedFunds = DisputedFunds.UNTOUCHED
    amount_minor: int
    currency: str
    reason: str = ""  # the provider's word for it
    respond_by: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackRequest:
    """A callback as it came: nothing is parsed before it is verified."""

    method: str
    headers: Mapping[str, str]  # names in lower case
    query: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedCallback:
    """A verified callback. `id` is the provider's own name for it, for duplicates.

    It is about a session, a refund or a dispute, or about nothing of ours, such as a ping. One
    about a dispute may say of its session that it was paid.
    """

    id: str
    session_id: UUID | None = None
    report: SessionReport | None = None
    refund_id: UUID | None = None
    refund: RefundReport | None = None
    dispute: DisputeReport | None = None
    #: What to keep instead of a body that wraps it; the same facts may be worded in other bytes.
    facts: bytes | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackAnswer:
    """What the provider wants to read when we have its callback."""

    body: bytes = b""
    content_type: str = "application/json"


class InvalidCallbackError(Exception):
    """A callback that is not signed by this account, too old, or cannot be read."""


class Gateway(Protocol):
    """One payment gateway. Calls end within 15 s; none is made inside a transaction."""

    provider: str
    capabilities: GatewayCapabilities

    async def create_session(
        self, account: GatewayAccount, request: GatewaySessionRequest
    ) -> SessionCreated | SessionRejected | OutcomeUnknown:
        """Open a session; a second call with the same id opens no second one."""
        ...

    async def close_session(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionReport | OutcomeUnknown:
        """Close a session if no money moved; the report tells what is true afterwards."""
        ...

    async def inquire(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionReport | OutcomeUnknown:
        """Ask what became of a session."""
        ...

    def parse_callback(self, account: GatewayAccount, request: CallbackRequest) -> VerifiedCallback:
        """Verify on the raw bytes, in constant time, then read. Raises `InvalidCallbackError`."""
        ...

    def acknowledge(self, callback: VerifiedCallback) -> CallbackAnswer:
        """Word the answer to a callback that is stored."""
        ...

    async def refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundReport | OutcomeUnknown:
        """Give money back; a second call with the same id gives back nothing more.

        Where the gateway cannot promise that, `capabilities.refund_is_idempotent` is False, and
        there is no second call.
        """
        ...

    async def inquire_refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundReport | OutcomeUnknown:
        """Ask what became of a refund; nothing is given back by asking."""
        ...

    def classify_failure(self, code: str) -> FailureReason:
        """Translate the gateway's own word for a failure; what nobody has met is `UNKNOWN`."""
        ...
