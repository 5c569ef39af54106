"""The port to payment gateways: requests to adapters, and the results that they return.

Every outcome is a value: done, pending, declined, not contacted or unknown. Adapters do not raise
if a gateway is unreachable or its response is invalid. Without a usable response, the outcome is
`OutcomeUnknown` rather than a failure, because the money may have moved.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

from payintent.gateways.amount_limits import AmountLimits
from payintent.gateways.settlement_reports import FileLayout, MovementPage


class AccountProblem(StrEnum):
    ADDRESS = "address"  # no connection, because of a wrong host name or port, or a firewall
    TLS = "tls"  # the certificate cannot be verified
    NO_RESPONSE = "silence"  # connected, but there was no usable response
    THROTTLED = "throttled"  # the gateway rate-limits or blocks us
    CREDENTIALS = "credentials"
    CLOCK = "clock"  # our clock differs from the gateway's
    OTHER_GATEWAY = "other_gateway"  # the server belongs to a different gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountCheck:
    problem: AccountProblem | None  # None if the account works
    detail: str  # shown to operators; contains no secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayAccount:
    """An account with decrypted credentials, owned by the platform or by a merchant."""

    id: int
    provider: str
    base_url: str
    credentials: Mapping[str, str] = field(repr=False)
    livemode: bool = True  # False for a test account, which only test merchants use


class RefundSupport(StrEnum):
    NONE = "none"
    FULL_ONLY = "full_only"  # the full amount, once
    PARTIAL = "partial"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayCapabilities:
    credentials: frozenset[str]  # names of the required fields
    optional_credentials: frozenset[str] = frozenset()  # other fields are rejected
    #: The gateway's number of decimals for each supported currency. None means that every currency
    #: is supported, with the same decimals as in the quote.
    decimals: Mapping[str, int] | None
    countries: frozenset[str] | None = None  # None means all
    #: The published limits on a payment's total, by currency. A method's own limits replace them.
    limits: Mapping[str, AmountLimits] = field(default_factory=dict[str, AmountLimits])
    refunds: RefundSupport = RefundSupport.PARTIAL
    #: Whether a refund can safely be sent again with the same id. If not, it is sent only once.
    refund_is_idempotent: bool = True
    #: The origins of the gateway's API, pages and scripts. An account's URLs must belong to them.
    origins: frozenset[str] = frozenset()
    #: The origin of the payment pages for each base URL of the API, if they differ.
    page_origins: Mapping[str, str] = field(default_factory=dict[str, str])
    shared_page_url: str = ""  # the base URL of the payment pages, if all accounts share them
    #: Derives the mode from a base URL and credentials: True for live, None if it is unknown.
    detect_livemode: Callable[[str, Mapping[str, str]], bool | None] = lambda _url, _keys: None
    remote: bool = True  # sessions require network requests, which are rate-limited for buyers
    remote_creation: bool = True  # creating a session requires a network request
    remote_refunds: bool = True  # refunds require network requests
    test_only: bool = False  # does not move money, so it has only test accounts
    sandbox_only: bool = False  # hidden in production unless it has accounts
    #: The gateway's minimum delay before the first inquiry about a session and between inquiries.
    #: It does not apply when the buyer returns or changes the method, or at the deadline.
    inquiry_gap_s: int = 0
    callback_bytes_max: int = 16 * 1024  # larger than any genuine callback
    card_brands: tuple[str, ...] = ()  # the names of brands that every account accepts
    layouts: tuple[FileLayout, ...] = ()  # the formats of settlement files

    @property
    def currencies(self) -> frozenset[str] | None:
        return None if self.decimals is None else frozenset(self.decimals)

    def page_url(self, account: GatewayAccount) -> str:
        """Return the base URL of the payment pages. The default is the base URL of the API."""
        url = self.shared_page_url or account.credentials.get("page_url")
        return url or self.page_origins.get(account.base_url.rstrip("/")) or account.base_url

    def describe_mode_mismatch(self, account: GatewayAccount) -> str | None:
        """Return an error message if the account's mode contradicts its credentials."""
        livemode = self.detect_livemode(account.base_url, account.credentials)
        if livemode is None or livemode == account.livemode:
            return None
        mode, account_mode = ("live", "test") if livemode else ("for testing", "live")
        return f"the base URL or the credentials are {mode}, but this is a {account_mode} account"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySessionRequest:
    """A request to collect exactly the quoted amount, in our minor units.

    Methods are offered only if the gateway's own units can represent the amount exactly.
    """

    session_id: UUID  # also the gateway's idempotency key
    amount_minor: int
    currency: str
    kind: str  # card, redirect or qr
    brand: str | None = None  # the named method to open, if the adapter supports it
    country: str
    description: str
    opened_at: datetime
    expires_at: datetime
    return_url: str
    callback_url: str
    locale: str | None = None
    payer_email: str | None = None
    payment_id: UUID | None = None
    order_id: str | None = None  # the merchant's order id, from the metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySessionRef:
    """A session to query, close or refund.

    `reference` is None if the gateway has not confirmed the creation. The other fields have the
    same values as in the creation request.
    """

    session_id: UUID
    reference: str | None
    amount_minor: int
    currency: str
    opened_at: datetime
    payment_id: UUID | None = None
    order_id: str | None = None


class GatewaySessionState(StrEnum):
    OPEN = "open"  # awaiting the buyer
    AUTHORISING = "authorising"  # the buyer is authorising the payment; must not be closed
    ATTEMPTED = "attempted"  # declined, but the buyer may retry; reported only by callbacks
    CAPTURED = "captured"
    DECLINED = "declined"  # ended without a capture
    CANCELLED = "cancelled"  # cancelled by the buyer at the gateway
    CLOSED = "closed"  # closed by us or expired
    ABSENT = "absent"  # unknown to the gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """Money that a gateway reports as captured, in our minor units."""

    reference: str  # assigned by the gateway, unique within the account
    amount_minor: int  # rounded down if the gateway's amount has more decimals
    currency: str  # the gateway's code; may be a currency that we do not support
    #: The amount as reported, if minor units cannot represent it exactly or it is `uncertain`.
    verbatim: str | None = None
    #: An uncertain capture does not settle the payment, and is not refunded automatically.
    uncertain: bool = False
    difference_max: int = 0  # accepted difference from the quoted amount
    is_surplus: bool = False  # an overpayment; another capture covers the payment's amount

    def matches(self, amount_minor: int, currency: str) -> bool:
        is_exact = self.verbatim is None and not self.uncertain and self.currency == currency
        return is_exact and abs(self.amount_minor - amount_minor) <= self.difference_max


class FailureReason(StrEnum):
    """The reason for a failure, as shown to the merchant (spec section 6.3)."""

    UNKNOWN = "UNKNOWN"
    DECLINED = "DECLINED"
    TX_REVERTED = "TX_REVERTED"
    AMOUNT_MISMATCH = "AMOUNT_MISMATCH"
    TOKEN_MISMATCH = "TOKEN_MISMATCH"  # noqa: S105 - not a password
    ONCHAIN_TIMEOUT = "ONCHAIN_TIMEOUT"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReport:
    state: GatewaySessionState
    capture: Capture | None = None
    reason: FailureReason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCreated:
    """The session exists at the gateway. The API returns `next_action` to the buyer's browser."""

    reference: str
    next_action: dict[str, Any]

    @classmethod
    def redirect(
        cls,
        reference: str,
        url: str,
        expires_at: datetime,
        post_fields: Mapping[str, str] | None = None,
    ) -> "SessionCreated":
        """Redirect the buyer to `url`, with a POST form if `post_fields` is set."""
        expiry = expires_at.astimezone(UTC).isoformat(timespec="milliseconds")
        redirect = {
            "url": url,
            "method": "GET" if post_fields is None else "POST",
            "fields": dict(post_fields or {}),
            "expires_at": expiry.replace("+00:00", "Z"),
        }
        return cls(reference=reference, next_action={"type": "redirect", "redirect": redirect})


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRejected:
    """The gateway rejected the request; no session exists."""

    detail: str  # for our logs, never for the merchant


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeUnknown:
    """There was no usable response, so the request may have taken effect.

    If one of the three flags is set, the circuit breaker does not count the outcome as a failure.
    """

    detail: str
    is_throttled: bool = False  # the gateway rate-limits us
    is_skipped: bool = False  # the adapter decided not to send a request
    has_responded: bool = False  # the response is authentic but inconclusive
    #: The problem that an account check reports for this outcome.
    problem: AccountProblem = field(default=AccountProblem.NO_RESPONSE, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotContacted(OutcomeUnknown):
    """The request was definitely not sent, or not executed because of a rate limit."""

    problem: AccountProblem = field(default=AccountProblem.ADDRESS, compare=False)


CreationResult = SessionCreated | SessionRejected | OutcomeUnknown
SessionResult = SessionReport | OutcomeUnknown


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayRefundRequest:
    refund_id: UUID  # also the idempotency key, if the gateway supports idempotency
    reference: str | None  # the gateway's refund id; None until it is reported
    session: GatewaySessionRef | None  # None if the capture has no session
    capture: Capture
    amount_minor: int
    reason: str
    destination: str | None  # None means the source of the payment
    callback_url: str
    was_sent_before: bool = False  # the earlier request may have taken effect


class GatewayRefundState(StrEnum):
    DONE = "done"
    PENDING = "pending"
    DECLINED = "declined"  # final; nothing was refunded
    #: Unknown to the gateway. If `refund_is_idempotent`, an unidentifiable refund may still exist.
    ABSENT = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundReport:
    state: GatewayRefundState
    reference: str | None = None
    detail: str = ""  # for our logs, never for the merchant
    needs_operator: bool = False  # a retry would fail in the same way


RefundResult = RefundReport | OutcomeUnknown


class DisputeState(StrEnum):
    INQUIRY = "inquiry"  # an inquiry by the bank; the money can still be refunded
    OPEN = "open"  # awaiting the merchant's response
    UNDER_REVIEW = "under_review"  # the merchant has responded; awaiting the bank's decision
    WON = "won"  # won by the merchant
    LOST = "lost"  # the money was returned to the buyer
    CLOSED = "closed"  # an inquiry that did not become a dispute


#: States in which the disputed money must not be refunded, because the bank may take it.
UNREFUNDABLE_DISPUTE_STATES = frozenset(
    {DisputeState.OPEN, DisputeState.UNDER_REVIEW, DisputeState.LOST}
)


class DisputedFunds(StrEnum):
    UNTOUCHED = "untouched"
    WITHDRAWN = "withdrawn"  # debited from the account
    REINSTATED = "reinstated"


@dataclass(frozen=True, slots=True, kw_only=True)
class DisputeReport:
    """A dispute as reported by a callback. The amount is in our minor units."""

    reference: str  # assigned by the gateway, unique within the account
    capture: str  # the reference of the disputed capture
    state: DisputeState
    funds: DisputedFunds = DisputedFunds.UNTOUCHED
    amount_minor: int
    currency: str
    reason: str = ""  # the gateway's reason code
    respond_by: datetime | None = None
    is_appeal: bool = False  # an appeal against a decision in favour of the buyer


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideRefund:
    """A refund that was made at the gateway, for example in its dashboard.

    The amount is in our minor units. Repeated reports with the same `reference` have no further
    effect. A report is ignored if we requested the refund.
    """

    reference: str  # assigned by the gateway
    capture: str  # the reference of the refunded capture
    state: GatewayRefundState
    amount_minor: int
    currency: str
    detail: str = ""  # for our logs, never for the merchant


@dataclass(frozen=True, slots=True, kw_only=True)
class FraudWarning:
    """A card issuer's warning that a payment is probably fraudulent. A dispute may follow."""

    reference: str  # assigned by the gateway, unique within the account
    capture: str  # the reference of the capture
    reason: str = ""  # the gateway's reason code


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackRequest:
    """A callback that has not been verified or parsed yet."""

    method: str
    headers: Mapping[str, str]  # names in lower case
    query: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedCallback:
    """A verified callback. Callbacks with the same `id` are duplicates.

    A callback reports a session, a refund, a dispute or a fraud warning, unless it is only a ping.
    A dispute may be accompanied by the capture of its session. A refund with our id may also be
    reported as an outside refund, which is recorded if the id is unknown.
    """

    id: str
    session_id: UUID | None = None
    report: SessionReport | None = None
    refund_id: UUID | None = None
    refund: RefundReport | None = None
    dispute: DisputeReport | None = None
    outside_refund: OutsideRefund | None = None
    fraud_warning: FraudWarning | None = None
    #: The content to store instead of the body, if the body may differ between deliveries.
    stored_body: bytes | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackResponse:
    body: bytes = b""
    content_type: str = "application/json"


class InvalidCallbackError(Exception):
    """The callback is not signed by this account, is too old, or cannot be parsed."""


class UnusableCallbackError(InvalidCallbackError):
    """An authentic callback in an unsupported format. The gateway displays the message."""


class Gateway(Protocol):
    """A payment gateway. Calls take at most 15 s, or 45 s for refunds with several requests."""

    provider: str
    capabilities: GatewayCapabilities

    async def create_session(
        self, account: GatewayAccount, request: GatewaySessionRequest
    ) -> CreationResult:
        """Open a session. A repeated call with the same id must not open a second session."""
        ...

    async def close_session(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionResult:
        """Close a session if no money has moved, and report its resulting state."""
        ...

    async def inquire(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionResult: ...

    def parse_callback(self, account: GatewayAccount, request: CallbackRequest) -> VerifiedCallback:
        """Verify the raw body in constant time, then parse it. Raises `InvalidCallbackError`."""
        ...

    def acknowledge(self, callback: VerifiedCallback) -> CallbackResponse: ...

    async def refund(self, account: GatewayAccount, request: GatewayRefundRequest) -> RefundResult:
        """Refund money. A repeated call with the same id must not refund again.

        If the gateway cannot guarantee this, `refund_is_idempotent` must be False.
        """
        ...

    async def inquire_refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundResult:
        """Query the state of a refund without sending it again."""
        ...

    def classify_failure(self, code: str) -> FailureReason: ...

    async def check_account(self, account: GatewayAccount) -> AccountCheck:
        """Verify the credentials with a request that has no side effects."""
        ...


@runtime_checkable
class ReportingGateway(Protocol):
    """A gateway with a reporting API. Each request to it takes at most 15 s."""

    async def list_movements(
        self, account: GatewayAccount, since: datetime, until: datetime, after: str | None
    ) -> MovementPage | OutcomeUnknown:
        """List movements at or after `since` and before `until`, starting after a cursor."""
        ...

    async def sum_payout_fees(
        self, account: GatewayAccount, reference: str
    ) -> int | OutcomeUnknown:
        """Return a payout's fees in minor units, or 0 if the gateway does not report them."""
        ...
