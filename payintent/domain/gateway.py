"""The port to payment gateways: our requests, and their answers.

Every outcome is a value: done, pending, declined, not contacted or unknown. An adapter raises
nothing when a gateway cannot be reached or understood. No usable answer is `OutcomeUnknown`,
never a failure, for the money may have moved; only a request that surely never left is
`NotContacted`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from payintent.domain.account_check import AccountCheck, AccountProblem
from payintent.domain.amount_limits import AmountLimits
from payintent.domain.payment import FailureReason
from payintent.domain.settlement_file import FileLayout

if TYPE_CHECKING:
    from payintent.domain.outside_reports import FraudWarning, OutsideRefund

#: A provider's name stands in addresses and answers; the database refuses another form too.
PROVIDER_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}", re.ASCII)
PROVIDER_NAME_FORM = "1 to 32 small letters, digits, _ and -"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayAccount:
    """Credentials at one provider, the platform's or a merchant's; decrypted only for use."""

    id: int
    provider: str
    base_url: str
    credentials: Mapping[str, str] = field(repr=False)
    livemode: bool = True  # False: test credentials, for test merchants alone


class RefundSupport(StrEnum):
    NONE = "none"
    WHOLE = "whole"  # all of it, once
    PARTS = "parts"


_LIVE_IN_TEST = "address or credentials are live ones, and this is a test account"
_TEST_IN_LIVE = "address or credentials are for tests, and this account is not: no money would come"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayCapabilities:
    credentials: frozenset[str]  # names of the fields an account must have
    #: Names of the fields that an account may have besides; any other name is refused.
    optional_credentials: frozenset[str] = frozenset()
    #: Decimals in which the gateway counts each currency; it takes no other currency. None: it
    #: counts each currency as the quote does.
    decimals: Mapping[str, int] | None
    countries: frozenset[str] | None = None  # None: all
    #: Published limits of a payment's total, by currency; operators may set others for a method.
    limits: Mapping[str, AmountLimits] = field(default_factory=dict[str, AmountLimits])
    refunds: RefundSupport = RefundSupport.PARTS
    #: Sending a refund again under the same id does it once. If False, it is sent only once.
    refund_is_idempotent: bool = True
    #: The origins of its API, pages and scripts; an account's addresses must be among these.
    origins: frozenset[str] = frozenset()
    #: By its API's base URL: the origin of its pages, where that is another one.
    page_origins: Mapping[str, str] = field(default_factory=dict[str, str])
    #: The base URL of its pages if all accounts share them.
    pages: str = ""
    #: Tells from an account's base URL and credentials whether it moves money (True), is for
    #: tests (False), or that neither shows (None).
    livemode_of: Callable[[str, Mapping[str, str]], bool | None] = lambda _url, _credentials: None
    #: Sessions are opened and inquired over the network, so buyers' share of them is bounded.
    remote: bool = True
    remote_refunds: bool = True  # somebody outside is asked for refunds
    test_only: bool = False  # no money moves there: only test accounts are at it
    #: How long the gateway wants us to wait before the first inquiry about a session, and between
    #: inquiries. A buyer's return, a change of method and the deadline inquire at once.
    inquiry_gap_s: int = 0
    callback_bytes_max: int = 16 * 1024  # no genuine callback is larger
    #: Of the gateway's own files of payments, refunds and payouts.
    layouts: tuple[FileLayout, ...] = ()

    @property
    def currencies(self) -> frozenset[str] | None:
        """The currencies that the gateway accepts; None: any."""
        return None if self.decimals is None else frozenset(self.decimals)

    def page_url(self, account: GatewayAccount) -> str:
        """Return the base URL of the gateway's pages: that of its API where no other is known."""
        given = self.pages or account.credentials.get("page_url")
        return given or self.page_origins.get(account.base_url.rstrip("/")) or account.base_url

    def mistaken_mode(self, account: GatewayAccount) -> str | None:
        """Say what is wrong where an account moves money and should not, or the reverse."""
        found = self.livemode_of(account.base_url, account.credentials)
        if found is None or found == account.livemode:
            return None
        return _LIVE_IN_TEST if found else _TEST_IN_LIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySessionRequest:
    """What a gateway is to collect: exactly the frozen quote.

    Amounts are in the currency's minor units as we count them (`domain/currencies.py`), also where
    the gateway counts in others: an adapter converts, and only gets what it can represent exactly.
    """

    session_id: UUID  # also the gateway's idempotency key
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
    payment_id: UUID | None = None
    order_id: str | None = None  # the merchant's own, from the metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySessionRef:
    """A session by both its ids, with its amount and currency.

    `reference` is missing while its creation is unanswered; then `order_id` is as in the creation.
    """

    session_id: UUID
    reference: str | None
    amount_minor: int
    currency: str
    opened_at: datetime
    payment_id: UUID | None = None
    order_id: str | None = None


class GatewaySessionState(StrEnum):
    OPEN = "open"  # waits for the buyer
    AUTHORISING = "authorising"  # the buyer is authorising the payment: must not be closed
    ATTEMPTED = "attempted"  # an attempt was declined, the buyer may try again: by callback only
    CAPTURED = "captured"  # money was taken
    DECLINED = "declined"  # ended without money
    CANCELLED = "cancelled"  # the buyer gave up at the gateway
    CLOSED = "closed"  # we closed it
    ABSENT = "absent"  # the gateway does not know it


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """Money that a gateway reports as taken; in our minor units."""

    reference: str  # the gateway's own, unique within the account
    amount_minor: int  # rounded down where the gateway's amount is finer
    currency: str  # as the gateway names it; not always one that we take
    #: The gateway's own words, if minor units cannot represent them exactly or it is `uncertain`.
    verbatim: str | None = None
    uncertain: bool = False  # the gateway doubts amount or time: pays nothing, no automatic refund

    def equals(self, amount_minor: int, currency: str) -> bool:
        exact = self.verbatim is None and not self.uncertain
        return exact and (self.amount_minor, self.currency) == (amount_minor, currency)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReport:
    state: GatewaySessionState
    capture: Capture | None = None
    reason: FailureReason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCreated:
    """The session exists at the gateway; `next_action` is the buyer's next step (as in the API)."""

    reference: str
    next_action: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRejected:
    """The gateway understood the request and refused it; nothing exists there."""

    detail: str  # for our logs, never for the merchant


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeUnknown:
    """No usable answer: the request may have been carried out."""

    detail: str
    #: The gateway limits our requests: it is reachable, though it may have done nothing.
    throttled: bool = False
    #: The adapter called nobody, by a rule of its own: this says nothing about the gateway.
    neutral: bool = False
    #: The gateway answered, and the answer is authentic, but it decides nothing: no outage.
    answered: bool = False
    #: What this would mean for an account that is only being checked.
    problem: AccountProblem = field(default=AccountProblem.SILENCE, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotContacted(OutcomeUnknown):
    """Nothing was sent, so that surely nothing happened: the request may be repeated or dropped."""

    problem: AccountProblem = field(default=AccountProblem.ADDRESS, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayRefundRequest:
    refund_id: UUID  # also the gateway's idempotency key, where it has such keys
    reference: str | None  # the gateway's own id of the refund, once it reported one
    session: GatewaySessionRef | None  # None: money that came for no session
    capture: Capture
    amount_minor: int
    reason: str
    destination: str | None  # where the money goes, if not where it came from
    callback_url: str
    sent_before: bool = False  # an earlier request may have been carried out


class GatewayRefundState(StrEnum):
    DONE = "done"
    PENDING = "pending"
    DECLINED = "declined"  # it will not be done: nothing was refunded
    ABSENT = "absent"  # not known; if `refund_is_idempotent`, also not to be told from others


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundReport:
    state: GatewayRefundState
    reference: str | None = None
    detail: str = ""  # for our logs, never for the merchant
    hopeless: bool = False  # sending it again would end the same way: an operator must look


class DisputeState(StrEnum):
    INQUIRY = "inquiry"  # a bank inquires; the money may still be refunded
    OPEN = "open"  # the merchant's answer is awaited
    UNDER_REVIEW = "under_review"  # it was answered, and the bank decides
    WON = "won"  # the money stays
    LOST = "lost"  # the buyer has the money back
    CLOSED = "closed"  # an inquiry that led to no dispute


class DisputedFunds(StrEnum):
    UNTOUCHED = "untouched"
    WITHDRAWN = "withdrawn"  # taken from the account
    REINSTATED = "reinstated"


@dataclass(frozen=True, slots=True, kw_only=True)
class DisputeReport:
    """What a gateway reports of one dispute, by callback; amounts in our minor units."""

    reference: str  # the gateway's own, unique within the account
    capture: str  # the reference of the disputed capture
    state: DisputeState
    funds: DisputedFunds = DisputedFunds.UNTOUCHED
    amount_minor: int
    currency: str
    reason: str = ""  # the gateway's own reason code
    respond_by: datetime | None = None
    appeal: bool = False  # against a decision that the buyer has won: only of `open` and after


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackRequest:
    """A callback as received: nothing is parsed before it is verified."""

    method: str
    headers: Mapping[str, str]  # names in lower case
    query: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedCallback:
    """A verified callback; `id` is the gateway's own id of it, by which duplicates are found.

    It is about a session, a refund, a dispute or a fraud warning, or about nothing of ours, such as
    a ping. One about a dispute may also report that its session was paid. A refund that names an id
    of ours may be reported as an outside refund too, which counts if we do not know the id.
    """

    id: str
    session_id: UUID | None = None
    report: SessionReport | None = None
    refund_id: UUID | None = None
    refund: RefundReport | None = None
    dispute: DisputeReport | None = None
    outside_refund: "OutsideRefund | None" = None
    fraud_warning: "FraudWarning | None" = None
    #: What to store instead of a body that wraps it; the same facts may come in other bytes.
    facts: bytes | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackAnswer:
    body: bytes = b""
    content_type: str = "application/json"


class InvalidCallbackError(Exception):
    """A callback is not signed by this account, is too old, or cannot be read."""


class UnusableCallbackError(InvalidCallbackError):
    """A callback is signed by this account, and of a kind that its endpoint must not send.

    The message is the answer to the gateway, whose dashboard shows it.
    """


class Gateway(Protocol):
    """One payment gateway. Calls end within 15 s; none is made inside a transaction."""

    provider: str
    capabilities: GatewayCapabilities

    async def create_session(
        self, account: GatewayAccount, request: GatewaySessionRequest
    ) -> SessionCreated | SessionRejected | OutcomeUnknown:
        """Open a session; a second call with the same id opens no second session."""
        ...

    async def close_session(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionReport | OutcomeUnknown:
        """Close a session if no money moved; the report tells its state afterwards."""
        ...

    async def inquire(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionReport | OutcomeUnknown: ...

    def parse_callback(self, account: GatewayAccount, request: CallbackRequest) -> VerifiedCallback:
        """Verify the raw bytes, in constant time, then parse. Raises `InvalidCallbackError`."""
        ...

    def acknowledge(self, callback: VerifiedCallback) -> CallbackAnswer: ...

    async def refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundReport | OutcomeUnknown:
        """Refund money; a second call with the same id refunds nothing more.

        Where the gateway cannot promise that, `capabilities.refund_is_idempotent` is False, and
        there is no second call.
        """
        ...

    async def inquire_refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundReport | OutcomeUnknown:
        """Ask the gateway for the state of a refund; it refunds nothing."""
        ...

    def classify_failure(self, code: str) -> FailureReason: ...

    async def check_account(self, account: GatewayAccount) -> AccountCheck:
        """Ask the gateway something that changes nothing and moves no money."""
        ...
