"""The adapter for Stripe: payment intents that the buyer confirms in Stripe's own element."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

from msgspec import Struct

from payintent.domain.gateway import (
    AccountCheck,
    AccountProblem,
    CallbackAnswer,
    CallbackRequest,
    GatewayAccount,
    GatewayCapabilities,
    GatewayRefundRequest,
    GatewayRefundState,
    GatewaySessionRef,
    GatewaySessionRequest,
    GatewaySessionState,
    OutcomeUnknown,
    RefundReport,
    SessionCreated,
    SessionRejected,
    SessionReport,
    VerifiedCallback,
)
from payintent.domain.payment import FailureReason
from payintent.gateways.http_client import GatewayHttpClient, HttpAnswer, decode_json, unusable
from payintent.gateways.stripe.account_check import is_live, mistaken_credentials, read_balance
from payintent.gateways.stripe.api import (
    DECIMALS,
    FAILURES,
    LIMITS,
    StripeErrorBody,
    StripePaymentIntent,
    StripeRefund,
    StripeRefundPage,
    read_error_body,
    refund_id_of,
    refund_report,
    session_id_of,
    session_report,
)
from payintent.gateways.stripe.events import read_event, verify_signature
from payintent.gateways.stripe.orders import (
    refund_order,
    refund_wire_id,
    session_order,
    session_wire_id,
)

if TYPE_CHECKING:
    from payintent.domain.balance_movement import MovementPage

API_VERSION = "2026-10-28.endive"
#: Stripe.js of the same release.
SCRIPT_URL = "https://js.stripe.com/endive/stripe.js"
CALLS_TIMEOUT_S = 15.0  # for an operation of several requests together
#: Stripe forgets idempotency keys after 24 h; then a repetition would open a second intent.
REPLAYS_FOR_S = 23 * 3600
REFUNDS_PAGE = 100  # Stripe's maximum
REFUNDS_PAGES_MAX = 10

_OK = 200
_FORBIDDEN, _CONFLICT = 403, 409
_NOT_FOUND = 404
# These are 4xx by number, and yet the request may have been or may still be carried out.
_UNSETTLED = frozenset({408, 409, 425, 429})
_REFUSING = frozenset({400, 402, 404})  # the request is wrong, not the key
_REFUSALS = frozenset({"invalid_request_error", "card_error"})
_KEY_REUSED = "idempotency_error"

S = TypeVar("S", bound=Struct)
R = TypeVar("R")

_API = "https://api.stripe.com"
_ABSENT = RefundReport(state=GatewayRefundState.ABSENT)
#: We have its money, so it is there: the credentials are another account's by now, and what this
#: one does not know may have been done.
_ELSEWHERE = RefundReport(
    state=GatewayRefundState.ABSENT,
    detail="this Stripe account does not know the payment",
    hopeless=True,
)


def _livemode(base_url: str, credentials: Mapping[str, str]) -> bool | None:
    """Tell by the secret key; at another address than Stripe's no money moves with any key."""
    return is_live(credentials, "secret_key") if base_url.rstrip("/") == _API else None


class StripeGateway:
    """Stripe, as a `Gateway`.

    Credentials: `secret_key`, `publishable_key`, `webhook_secret`; `script_url` where Stripe.js
    is to come from elsewhere than Stripe. The webhook endpoint is to send `payment_intent`'s
    `succeeded`, `payment_failed` and `canceled`, `refund`'s `created`, `updated` and `failed`,
    `radar.early_fraud_warning`'s `created` and `updated`, and all of `charge.dispute`.
    """

    provider = "stripe"
    capabilities = GatewayCapabilities(
        credentials=frozenset({"secret_key", "publishable_key", "webhook_secret"}),
        optional_credentials=frozenset({"script_url"}),
        decimals=DECIMALS,
        limits=LIMITS,
        origins=frozenset({_API, "https://js.stripe.com"}),
        livemode_of=_livemode,
        callback_bytes_max=256 * 1024,  # an event contains the whole object, with its metadata
    )

    def __init__(self, http: GatewayHttpClient, now: Callable[[], float] = time.time) -> None:
        self._http = http
        self._now = now

    async def create_session(
        self, account: GatewayAccount, request: GatewaySessionRequest
    ) -> SessionCreated | SessionRejected | OutcomeUnknown:
        order = session_order(request)
        answer = await self._post(account, "/payment_intents", order, session_wire_id(request))
        if isinstance(answer, OutcomeUnknown):
            return answer
        intent = _read(answer, StripePaymentIntent)
        if intent is None:
            return _refused(answer) or _unusable(answer)
        return _created(account, request, intent)

    async def close_session(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionReport | OutcomeUnknown:
        """Cancel a payment intent; where Stripe refuses, the report has its actual state."""
        return await _in_time(self._close(account, session))

    async def inquire(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionReport | OutcomeUnknown:
        return await _in_time(self._inquire(account, session))

    def parse_callback(self, account: GatewayAccount, request: CallbackRequest) -> VerifiedCallback:
        secret = account.credentials.get("webhook_secret", "")
        header = request.headers.get("stripe-signature", "")
        verify_signature(secret, header, request.body, self._now())
        return read_event(request.body)

    def acknowledge(self, callback: VerifiedCallback) -> CallbackAnswer:  # noqa: ARG002 - the port's shape
        return CallbackAnswer(body=b'{"received":true}')

    async def refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundReport | OutcomeUnknown:
        """Request a refund, unless Stripe already has a refund of this id.

        Its idempotency key keeps repetitions apart for a day; the search at Stripe, for ever.
        """
        return await _in_time(self._refund(account, request))

    async def inquire_refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundReport | OutcomeUnknown:
        return await _in_time(self._find_refund(account, request))

    def classify_failure(self, code: str) -> FailureReason:
        return FAILURES.get(code, FailureReason.UNKNOWN)

    async def check_account(self, account: GatewayAccount) -> AccountCheck:
        mistaken = mistaken_credentials(account)
        return mistaken or read_balance(account, await self._get(account, "/balance"), self._now())

    async def list_movements(
        self, account: GatewayAccount, since: datetime, until: datetime, after: str | None
    ) -> "MovementPage | OutcomeUnknown":
        from payintent.gateways.stripe import reporting

        return await _in_time(reporting.list_movements(self._get, account, since, until, after))

    async def sum_payout_fees(
        self, account: GatewayAccount, reference: str
    ) -> int | OutcomeUnknown:
        from payintent.gateways.stripe import reporting

        return await reporting.sum_payout_fees(self._get, account, reference)

    async def _inquire(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionReport | OutcomeUnknown:
        reference = session.reference or await self._recall(account, session)
        if not isinstance(reference, str):
            return reference
        return _reported(await self._get(account, _path(reference)), session)

    async def _close(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionReport | OutcomeUnknown:
        reference = session.reference or await self._recall(account, session)
        if not isinstance(reference, str):
            return reference
        answer = await self._post(account, f"{_path(reference)}/cancel", {})
        if isinstance(answer, HttpAnswer) and answer.status in _REFUSING and _trouble(answer):
            # It was paid, is being paid or was cancelled before: its own status says which.
            answer = await self._get(account, _path(reference))
        return _reported(answer, session)

    async def _recall(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> str | SessionReport | OutcomeUnknown:
        """Find the intent of an unanswered creation: the same request again returns it.

        If the first request never arrived, this one opens the intent: no buyer has its client
        secret, so it cannot be paid, and from now on we know it.
        """
        if self._now() - session.opened_at.timestamp() > REPLAYS_FOR_S:
            return OutcomeUnknown(detail="its creation is too old to be sent again", neutral=True)
        answer = await self._post(
            account, "/payment_intents", session_order(session), session_wire_id(session)
        )
        if isinstance(answer, OutcomeUnknown):
            return answer
        intent = _read(answer, StripePaymentIntent)
        if intent and session_id_of(intent) == session.session_id:
            return intent.id
        if answer.status in _REFUSING and _refused(answer):
            return SessionReport(state=GatewaySessionState.ABSENT)
        trouble = _trouble(answer)
        if trouble is not None and trouble.type == _KEY_REUSED:
            return OutcomeUnknown(detail="its creation had other parameters", answered=True)
        return _unusable(answer)

    async def _refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundReport | OutcomeUnknown:
        earlier = await self._find_refund(account, request)
        if isinstance(earlier, OutcomeUnknown) or earlier != _ABSENT:
            return earlier
        answer = await self._post(
            account, "/refunds", refund_order(request), refund_wire_id(request)
        )
        if isinstance(answer, OutcomeUnknown):
            return answer
        refund = _read(answer, StripeRefund)
        if refund and refund_id_of(refund) == request.refund_id:
            return refund_report(refund) or _undocumented("a refund", refund.status)
        if answer.status == _NOT_FOUND and _trouble(answer):
            return _ELSEWHERE
        if answer.status in _REFUSING and _refused(answer):
            return RefundReport(state=GatewayRefundState.DECLINED, detail=_detail(answer))
        return _unusable(answer)

    async def _find_refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundReport | OutcomeUnknown:
        query = {"payment_intent": request.capture.reference, "limit": str(REFUNDS_PAGE)}
        for _ in range(REFUNDS_PAGES_MAX):
            answer = await self._get(account, f"/refunds?{urlencode(query)}")
            if isinstance(answer, OutcomeUnknown):
                return answer
            if answer.status == _NOT_FOUND and _trouble(answer):
                return _ELSEWHERE
            page = _read(answer, StripeRefundPage)
            if page is None:
                return _unusable(answer)
            for refund in page.data:
                # A refund of the Dashboard has no id of ours; then its reference is known.
                if refund_id_of(refund) == request.refund_id or refund.id == request.reference:
                    return refund_report(refund) or _undocumented("a refund", refund.status)
            if not page.has_more or not page.data:
                return _ABSENT
            query["starting_after"] = page.data[-1].id
        return OutcomeUnknown(detail="too many refunds to look through", answered=True)

    async def _get(self, account: GatewayAccount, path: str) -> HttpAnswer | OutcomeUnknown:
        return await self._http.request("GET", _url(account, path), headers=_headers(account))

    async def _post(
        self, account: GatewayAccount, path: str, form: Mapping[str, str], key: str | None = None
    ) -> HttpAnswer | OutcomeUnknown:
        headers = _headers(account)
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        if key is not None:
            headers["Idempotency-Key"] = key
        body = urlencode(form).encode()
        return await self._http.request("POST", _url(account, path), headers=headers, body=body)


async def _in_time(work: Awaitable[R]) -> R | OutcomeUnknown:
    """Bound several requests by the time limit of one operation."""
    try:
        async with asyncio.timeout(CALLS_TIMEOUT_S):
            return await work
    except TimeoutError:
        return OutcomeUnknown(detail=f"not finished within {CALLS_TIMEOUT_S:g} s")


def _headers(account: GatewayAccount) -> dict[str, str]:
    return {
        "Authorization": f"Bearer {account.credentials['secret_key']}",
        "Stripe-Version": API_VERSION,
    }


def _url(account: GatewayAccount, path: str) -> str:
    return f"{account.base_url.rstrip('/')}/v1{path}"


def _path(reference: str) -> str:
    return f"/payment_intents/{quote(reference, safe='')}"


def _created(
    account: GatewayAccount, request: GatewaySessionRequest, intent: StripePaymentIntent
) -> SessionCreated | OutcomeUnknown:
    order = session_order(request)
    stands_for = str(intent.amount), intent.currency.lower()
    if session_id_of(intent) != request.session_id or not intent.client_secret:
        return OutcomeUnknown(detail="the answer to a creation is about another one", answered=True)
    if stands_for != (order["amount"], order["currency"]):
        return OutcomeUnknown(detail="the payment intent stands for another amount", answered=True)
    card: dict[str, Any] = {
        "provider": "stripe",
        "script_url": account.credentials.get("script_url") or SCRIPT_URL,
        "publishable_key": account.credentials["publishable_key"],
        "client_secret": intent.client_secret,
    }
    return SessionCreated(
        reference=intent.id, next_action={"type": "embedded_card", "embedded_card": card}
    )


def _reported(
    answer: HttpAnswer | OutcomeUnknown, requested: GatewaySessionRef
) -> SessionReport | OutcomeUnknown:
    if isinstance(answer, OutcomeUnknown):
        return answer
    if answer.status == _NOT_FOUND and _trouble(answer):
        # Stripe's own answer: a proxy's 404 says nothing about money.
        return SessionReport(state=GatewaySessionState.ABSENT)
    intent = _read(answer, StripePaymentIntent)
    if intent is None or session_id_of(intent) != requested.session_id:
        return _unusable(answer)
    return session_report(intent) or _undocumented("a payment intent", intent.status)


def _undocumented(name: str, status: str | None) -> OutcomeUnknown:
    return OutcomeUnknown(detail=f"{name} is {status}", answered=True)


def _read(answer: HttpAnswer, kind: type[S]) -> S | None:
    return decode_json(answer.body, kind) if answer.status == _OK else None


def _trouble(answer: HttpAnswer) -> StripeErrorBody | None:
    return read_error_body(answer.body)


def _refused(answer: HttpAnswer) -> SessionRejected | None:
    """Return a rejection where Stripe understood and refuses; a reused idempotency key is none."""
    trouble = _trouble(answer)
    settled = answer.status // 100 == 4 and answer.status not in _UNSETTLED  # noqa: PLR2004 - 4xx
    if trouble is None or trouble.type not in _REFUSALS or not settled:
        return None
    return SessionRejected(detail=_detail(answer))


def _unusable(answer: HttpAnswer) -> OutcomeUnknown:
    """Return the outcome of an answer without a result.

    Stripe limits requests by 429. Its own 403 means that the key lacks a permission; another 403 is
    that of something in front of Stripe, which may limit requests.
    """
    if answer.status == _FORBIDDEN and _trouble(answer):
        return OutcomeUnknown(detail=_detail(answer), problem=AccountProblem.CREDENTIALS)
    if answer.status == _CONFLICT and _trouble(answer):  # with another request of ours
        return OutcomeUnknown(detail=_detail(answer), answered=True)
    return unusable(answer.status, _detail(answer))


def _detail(answer: HttpAnswer) -> str:
    trouble = _trouble(answer)
    if trouble is None:
        return f"status {answer.status}: nothing readable"
    words = (trouble.type, trouble.code, trouble.decline_code, trouble.param)
    return f"status {answer.status}: {' '.join(word for word in words if word)}"
