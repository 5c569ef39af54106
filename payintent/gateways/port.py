"""The port to payment gateways: requests, and the reports that adapters return.

Every outcome is a value: done, pending, declined, not contacted or unknown. Adapters do not raise
if a gateway is unreachable or its response is invalid. Without a usable response the outcome is
`OutcomeUnknown`, not a failure, because the money may have moved. `NotContacted` is only for
requests that were certainly not sent.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

from payintent.gateways.amount_limits import AmountLimits
from payintent.gateways.settlement_file import FileLayout


class AccountProblem(StrEnum):
    ADDRESS = "address"  # no connection: host name, port or firewall
    TLS = "tls"  # the certificate cannot be verified
    NO_RESPONSE = "silence"  # connected, but no usable response
    THROTTLED = "throttled"  # the gateway limits our requests or blocks our address
    CREDENTIALS = "credentials"
    CLOCK = "clock"  # our clock and the gateway's differ
    OTHER_GATEWAY = "other_gateway"  # the server is not this gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountCheck:
    problem: AccountProblem | None  # None: the account works
    detail: str  # for operators, without secrets


#: The provider's name is part of URLs and responses; the database checks this pattern too.
PROVIDER_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}", re.ASCII)
PROVIDER_NAME_FORM = "1 to 32 small letters, digits, _ and -"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayAccount:
    """An account of the platform or of a merchant, with decrypted credentials."""

    id: int
    provider: str
    base_url: str
    credentials: Mapping[str, str] = field(repr=False)
    livemode: bool = True  # False: test credentials, only for test merchants


class RefundSupport(StrEnum):
    NONE = "none"
    WHOLE = "whole"  # the full amount, once
    PARTS = "parts"


_LIVE_IN_TEST = "the base URL or the credentials are live, but this is a test account"
_TEST_IN_LIVE = "the base URL or the credentials are for tests, so this account would earn no money"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayCapabilities:
    credentials: frozenset[str]  # names of the required fields
    optional_credentials: frozenset[str] = frozenset()  # any other field is rejected
    #: The number of decimals of each supported currency at the gateway. None: every currency, in
    #: the units of the quote.
    decimals: Mapping[str, int] | None
    countries: frozenset[str] | None = None  # None: all
    #: Published limits of a payment's total by currency; operators may override them per method.
    limits: Mapping[str, AmountLimits] = field(default_factory=dict[str, AmountLimits])
    refunds: RefundSupport = RefundSupport.PARTS
    #: A refund that is sent again under the same id happens once. If False, it is sent only once.
    refund_is_idempotent: bool = True
    #: The origins of its API, pages and scripts, to which the URLs of an account are restricted.
    origins: frozenset[str] = frozenset()
    #: The origin of its pages by the base URL of its API, if they differ.
    page_origins: Mapping[str, str] = field(default_factory=dict[str, str])
    #: The base URL of its pages if all accounts share them.
    pages: str = ""
    #: Derives from an account's base URL and credentials whether it moves money (True), is for
    #: tests (False), or is ambiguous (None).
    livemode_of: Callable[[str, Mapping[str, str]], bool | None] = lambda _url, _credentials: None
    #: Sessions need requests over the network, so the number that buyers cause is limited.
    remote: bool = True
    remote_refunds: bool = True  # refunds need requests over the network
    test_only: bool = False  # only for test accounts, because no money moves
    #: The gateway's minimum delay before the first inquiry about a session and between inquiries.
    #: It does not apply when the buyer returns or changes the method, and at the deadline.
    inquiry_gap_s: int = 0
    callback_bytes_max: int = 16 * 1024  # genuine callbacks are smaller
    #: Formats of the gateway's files of payments, refunds and payouts.
    layouts: tuple[FileLayout, ...] = ()

    @property
    def currencies(self) -> frozenset[str] | None:
        """The currencies that the gateway accepts; None: any."""
        return None if self.decimals is None else frozenset(self.decimals)

    def page_url(self, account: GatewayAccount) -> str:
        """Return the base URL of the gateway's pages, by default that of its API."""
        page_url = self.pages or account.credentials.get("page_url")
        return page_url or self.page_origins.get(account.base_url.rstrip("/")) or account.base_url

    def mode_mismatch(self, account: GatewayAccount) -> str | None:
        """Explain a contradiction between an account's mode and its credentials, or return None."""
        livemode = self.livemode_of(account.base_url, account.credentials)
        if livemode is None or livemode == account.livemode:
            return None
        return _LIVE_IN_TEST if livemode else _TEST_IN_LIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySessionRequest:
    """A request to collect exactly the amount of the frozen quote.

    Amounts are in our minor units (`core/money.py`). The adapter converts them to the
    gateway's units; it only receives amounts that it can represent exactly.
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
    """A session with both of its ids, its amount and its currency.

    `reference` is None until its creation was answered; `order_id` is the same as in its creation.
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
    ATTEMPTED = "attempted"  # declined, but the buyer may retry; reported by callbacks only
    CAPTURED = "captured"
    DECLINED = "declined"  # ended without a capture
    CANCELLED = "cancelled"  # by the buyer at the gateway
    CLOSED = "closed"  # by us
    ABSENT = "absent"  # unknown to the gateway


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """Money that a gateway reports as captured, in our minor units."""

    reference: str  # assigned by the gateway, unique within the account
    amount_minor: int  # rounded down if the gateway's amount is finer
    currency: str  # the gateway's code, possibly of a currency that we do not support
    #: The gateway's own text, if minor units cannot represent it exactly or it is `uncertain`.
    verbatim: str | None = None
    uncertain: bool = False  # amount or time are in doubt: no payment, no automatic refund

    def equals(self, amount_minor: int, currency: str) -> bool:
        is_exact = self.verbatim is None and not self.uncertain
        return is_exact and (self.amount_minor, self.currency) == (amount_minor, currency)


class FailureReason(StrEnum):
    """The reason of a failure, as shown to the merchant (spec section 6.3)."""

    UNKNOWN = "UNKNOWN"
    DECLINED = "DECLINED"
    TX_REVERTED = "TX_REVERTED"
    AMOUNT_MISMATCH = "AMOUNT_MISMATCH"
    TOKEN_MISMATCH = "TOKEN_MISMATCH"  # noqa: S105 - a reason
    ONCHAIN_TIMEOUT = "ONCHAIN_TIMEOUT"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReport:
    state: GatewaySessionState
    capture: Capture | None = None
    reason: FailureReason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCreated:
    """The session exists at the gateway; `next_action` has the format of the API."""

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
        """Redirect the buyer to `url`, by a POST if there are fields."""
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
    """There was no usable response: the request may have been carried out."""

    detail: str
    #: The gateway limits our requests, so it is reachable.
    is_throttled: bool = False
    #: The adapter sent no request, by its own rules: not an outage of the gateway.
    is_skipped: bool = False
    #: The response is authentic but inconclusive: not an outage of the gateway.
    has_responded: bool = False
    #: The result if this happens in an account check.
    problem: AccountProblem = field(default=AccountProblem.NO_RESPONSE, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotContacted(OutcomeUnknown):
    """The request was not sent, so it can be repeated or dropped safely."""

    problem: AccountProblem = field(default=AccountProblem.ADDRESS, compare=False)


CreationResult = SessionCreated | SessionRejected | OutcomeUnknown
SessionResult = SessionReport | OutcomeUnknown


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayRefundRequest:
    refund_id: UUID  # also the idempotency key, if the gateway supports them
    reference: str | None  # the gateway's id of the refund; None until it is reported
    session: GatewaySessionRef | None  # None: the capture has no session
    capture: Capture
    amount_minor: int
    reason: str
    destination: str | None  # if the money does not return to its source
    callback_url: str
    sent_before: bool = False  # an earlier request may have been carried out


class GatewayRefundState(StrEnum):
    DONE = "done"
    PENDING = "pending"
    DECLINED = "declined"  # final: nothing was refunded
    #: Unknown to the gateway; if `refund_is_idempotent`, possibly only not identifiable.
    ABSENT = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundReport:
    state: GatewayRefundState
    reference: str | None = None
    detail: str = ""  # for our logs, never for the merchant
    needs_operator: bool = False  # a retry would fail the same way, so an operator must decide


RefundResult = RefundReport | OutcomeUnknown


class DisputeState(StrEnum):
    INQUIRY = "inquiry"  # by a bank; the money can still be refunded
    OPEN = "open"  # needs the merchant's response
    UNDER_REVIEW = "under_review"  # the merchant responded, and the bank decides
    WON = "won"  # by the merchant
    LOST = "lost"  # the buyer got the money back
    CLOSED = "closed"  # an inquiry that did not become a dispute


#: States in which the disputed money may not be refunded, since the bank may take it.
HOLDING_STATES = frozenset({DisputeState.OPEN, DisputeState.UNDER_REVIEW, DisputeState.LOST})


class DisputedFunds(StrEnum):
    UNTOUCHED = "untouched"
    WITHDRAWN = "withdrawn"  # debited from the account
    REINSTATED = "reinstated"


@dataclass(frozen=True, slots=True, kw_only=True)
class DisputeReport:
    """The state of a dispute, reported by callback; amounts in our minor units."""

    reference: str  # assigned by the gateway, unique within the account
    capture: str  # the reference of the disputed capture
    state: DisputeState
    funds: DisputedFunds = DisputedFunds.UNTOUCHED
    amount_minor: int
    currency: str
    reason: str = ""  # the gateway's reason code
    respond_by: datetime | None = None
    appeal: bool = False  # against a decision in favour of the buyer


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideRefund:
    """A refund that was made at the gateway itself, for example in its dashboard.

    The amount is in our minor units. It counts once per `reference`, however often it is reported,
    and not at all if we requested the refund with this reference.
    """

    reference: str  # assigned by the gateway
    capture: str  # the reference of the refunded capture
    state: GatewayRefundState
    amount_minor: int
    currency: str
    detail: str = ""  # for our logs, never for the merchant


@dataclass(frozen=True, slots=True, kw_only=True)
class FraudWarning:
    """An issuer's warning that a payment is fraudulent; a dispute may follow."""

    reference: str  # assigned by the gateway, unique within the account
    capture: str  # the reference of the capture
    reason: str = ""  # the gateway's reason code


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackRequest:
    """A callback as received, not yet verified or parsed."""

    method: str
    headers: Mapping[str, str]  # names in lower case
    query: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedCallback:
    """A verified callback; `id` is assigned by the gateway and identifies duplicates.

    It reports a session, a refund, a dispute or a fraud warning, or nothing relevant, such as a
    ping. A dispute may be accompanied by the capture of its session. A refund with an id of ours
    may also be reported as an outside refund, which counts if the id is unknown.
    """

    id: str
    session_id: UUID | None = None
    report: SessionReport | None = None
    refund_id: UUID | None = None
    refund: RefundReport | None = None
    dispute: DisputeReport | None = None
    outside_refund: OutsideRefund | None = None
    fraud_warning: FraudWarning | None = None
    #: The payload to store instead of the body, if the same payload may arrive in other bytes.
    facts: bytes | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackAnswer:
    body: bytes = b""
    content_type: str = "application/json"


class InvalidCallbackError(Exception):
    """A callback is not signed by this account, is too old, or cannot be parsed."""


class UnusableCallbackError(InvalidCallbackError):
    """A callback is signed by this account, but its endpoint must not send this kind.

    The message is the response to the gateway, whose dashboard shows it.
    """


class Gateway(Protocol):
    """A payment gateway. Calls take at most 15 s and are never made inside a transaction."""

    provider: str
    capabilities: GatewayCapabilities

    async def create_session(
        self, account: GatewayAccount, request: GatewaySessionRequest
    ) -> CreationResult:
        """Open a session; a second call with the same id does not open a second session."""
        ...

    async def close_session(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionResult:
        """Close a session if no money moved; the report has its state afterwards."""
        ...

    async def inquire(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionResult: ...

    def parse_callback(self, account: GatewayAccount, request: CallbackRequest) -> VerifiedCallback:
        """Verify the raw bytes in constant time, then parse. Raises `InvalidCallbackError`."""
        ...

    def acknowledge(self, callback: VerifiedCallback) -> CallbackAnswer: ...

    async def refund(self, account: GatewayAccount, request: GatewayRefundRequest) -> RefundResult:
        """Refund money; a second call with the same id does not refund again.

        If the gateway cannot guarantee this, `capabilities.refund_is_idempotent` must be False;
        then there is no second call.
        """
        ...

    async def inquire_refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundResult:
        """Query the state of a refund, without sending it again."""
        ...

    def classify_failure(self, code: str) -> FailureReason: ...

    async def check_account(self, account: GatewayAccount) -> AccountCheck:
        """Verify the credentials by a request without side effects."""
        ...
