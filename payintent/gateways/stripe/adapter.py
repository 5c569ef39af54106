"""The adapter for Stripe: the buyer confirms payment intents in Stripe's element."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from msgspec import Struct

from payintent.gateways.http_client import (
    GatewayHttpClient,
    HttpAnswer,
    HttpResult,
    decode_json,
    inconclusive_response,
    unusable_response,
)
from payintent.gateways.port import (
    AccountCheck,
    AccountProblem,
    CallbackAnswer,
    CallbackRequest,
    CreationResult,
    FailureReason,
    GatewayAccount,
    GatewayCapabilities,
    GatewayRefundRequest,
    GatewayRefundState,
    GatewaySessionRef,
    GatewaySessionRequest,
    GatewaySessionState,
    OutcomeUnknown,
    RefundReport,
    RefundResult,
    SessionCreated,
    SessionRejected,
    SessionReport,
    SessionResult,
    VerifiedCallback,
)
from payintent.gateways.settlement_reports import MovementPage
from payintent.gateways.stripe import reporting
from payintent.gateways.stripe.account_check import check_balance, is_live, mistaken_credentials
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
from payintent.gateways.stripe.events import (
    read_event,
    refund_order,
    refund_wire_id,
    session_order,
    session_wire_id,
    verify_signature,
)

API_VERSION = "2026-10-28.endive"
#: Stripe.js of the same release.
SCRIPT_URL = "https://js.stripe.com/endive/stripe.js"
CALLS_TIMEOUT_S = 15.0  # for all requests of an operation
#: Stripe forgets idempotency keys after 24 h; a later repetition would open a second intent.
REPLAYS_FOR_S = 23 * 3600
REFUNDS_PAGE = 100  # Stripe's maximum
REFUNDS_PAGES_MAX = 10

_OK = 200
_FORBIDDEN, _CONFLICT = 403, 409
_NOT_FOUND = 404
# After these statuses the request may have been or may still be carried out.
_UNSETTLED = frozenset({408, 409, 425, 429})
_REFUSING = frozenset({400, 402, 404})  # the request is invalid, not the key
_REFUSALS = frozenset({"invalid_request_error", "card_error"})
_KEY_REUSED = "idempotency_error"

S = TypeVar("S", bound=Struct)
R = TypeVar("R")

_API = "https://api.stripe.com"
_ABSENT = RefundReport(state=GatewayRefundState.ABSENT)
#: The payment exists, because it was captured. The credentials have been replaced by those of
#: another account, so the refund may have been made in the previous account.
_OTHER_ACCOUNT = RefundReport(
    state=GatewayRefundState.ABSENT,
    detail="this Stripe account does not know the payment",
    needs_operator=True,
)


def _livemode(base_url: str, credentials: Mapping[str, str]) -> bool | None:
    """Decide by the secret key; None if the base URL is not Stripe's."""
    return is_live(credentials, "secret_key") if base_url.rstrip("/") == _API else None


class StripeGateway:
    """Stripe, as a `Gateway`.

    Credentials: `secret_key`, `publishable_key`, `webhook_secret`; optionally `script_url` for
    another source of Stripe.js. The webhook endpoint must send `payment_intent.succeeded`,
    `.payment_failed` and `.canceled`; `refund.created`, `.updated` and `.failed`;
    `radar.early_fraud_warning.created` and `.updated`; and all of `charge.dispute`.
    """

    provider = "stripe"
    capabilities = GatewayCapabilities(
        credentials=frozenset({"secret_key", "publishable_key", "webhook_secret"}),
        optional_credentials=frozenset({"script_url"}),
        decimals=DECIMALS,
        limits=LIMITS,
        origins=frozenset({_API, "https://js.stripe.com"}),
        livemode_of=_livemode,
        callback_bytes_max=256 * 1024,  # an event contains the full object with its metadata
    )

    def __init__(self, http: GatewayHttpClient, now: Callable[[], float] = time.time) -> None:
        self._http = http
        self._now = now

    async def create_session(
        self, account: GatewayAccount, request: GatewaySessionRequest
    ) -> CreationResult:
        order = session_order(request)
        answer = await self._post(account, "/payment_intents", order, session_wire_id(request))
        if isinstance(answer, OutcomeUnknown):
            return answer
        intent = _decode(answer, StripePaymentIntent)
        if intent is None:
            return _rejection(answer) or _unusable(answer)
        return _session_created(account, request, intent)

    async def close_session(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionResult:
        """Cancel a payment intent; if Stripe refuses, report its actual state."""
        return await _in_time(self._query_session(account, session, cancels=True))

    async def inquire(self, account: GatewayAccount, session: GatewaySessionRef) -> SessionResult:
        return await _in_time(self._query_session(account, session))

    def parse_callback(self, account: GatewayAccount, request: CallbackRequest) -> VerifiedCallback:
        secret = account.credentials.get("webhook_secret", "")
        header = request.headers.get("stripe-signature", "")
        verify_signature(secret, header, request.body, self._now())
        return read_event(request.body)

    def acknowledge(self, callback: VerifiedCallback) -> CallbackAnswer:  # noqa: ARG002 - the port's shape
        return CallbackAnswer(body=b'{"received":true}')

    async def refund(self, account: GatewayAccount, request: GatewayRefundRequest) -> RefundResult:
        """Request a refund, unless Stripe already has a refund with this id.

        The idempotency key prevents a second refund for a day only; the search always does.
        """
        return await _in_time(self._refund(account, request))

    async def inquire_refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundResult:
        return await _in_time(self._find_refund(account, request))

    def classify_failure(self, code: str) -> FailureReason:
        return FAILURES.get(code, FailureReason.UNKNOWN)

    async def check_account(self, account: GatewayAccount) -> AccountCheck:
        if problem := mistaken_credentials(account):
            return problem
        return check_balance(account, await self._get(account, "/balance"), self._now())

    async def list_movements(
        self, account: GatewayAccount, since: datetime, until: datetime, after: str | None
    ) -> MovementPage | OutcomeUnknown:
        return await _in_time(reporting.list_movements(self._get, account, since, until, after))

    async def sum_payout_fees(
        self, account: GatewayAccount, reference: str
    ) -> int | OutcomeUnknown:
        return await reporting.sum_payout_fees(self._get, account, reference)

    async def _query_session(
        self, account: GatewayAccount, session: GatewaySessionRef, *, cancels: bool = False
    ) -> SessionResult:
        reference = session.reference or await self._find_reference(account, session)
        if not isinstance(reference, str):
            return reference
        if cancels:
            answer = await self._post(account, f"{_intent_path(reference)}/cancel", {})
            is_answer = isinstance(answer, HttpAnswer)
            if not (is_answer and answer.status in _REFUSING and _parse_error(answer)):
                return _parse_session(answer, session)
            # It was paid or cancelled before, or is being paid: report its state.
        return _parse_session(await self._get(account, _intent_path(reference)), session)

    async def _find_reference(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> str | SessionReport | OutcomeUnknown:
        """Find the intent of an unanswered creation by sending the same request again.

        If the first request did not arrive, the repetition opens the intent. It cannot be paid,
        because no buyer has its client secret.
        """
        if self._now() - session.opened_at.timestamp() > REPLAYS_FOR_S:
            return OutcomeUnknown(
                detail="the creation is too old to be sent again", is_skipped=True
            )
        answer = await self._post(
            account, "/payment_intents", session_order(session), session_wire_id(session)
        )
        if isinstance(answer, OutcomeUnknown):
            return answer
        intent = _decode(answer, StripePaymentIntent)
        if intent and session_id_of(intent) == session.session_id:
            return intent.id
        if answer.status in _REFUSING and _rejection(answer):
            return SessionReport(state=GatewaySessionState.ABSENT)
        error = _parse_error(answer)
        if error is not None and error.type == _KEY_REUSED:
            return inconclusive_response("the creation had other parameters")
        return _unusable(answer)

    async def _refund(self, account: GatewayAccount, request: GatewayRefundRequest) -> RefundResult:
        earlier = await self._find_refund(account, request)
        if isinstance(earlier, OutcomeUnknown) or earlier != _ABSENT:
            return earlier
        answer = await self._post(
            account, "/refunds", refund_order(request), refund_wire_id(request)
        )
        if isinstance(answer, OutcomeUnknown):
            return answer
        refund = _decode(answer, StripeRefund)
        if refund and refund_id_of(refund) == request.refund_id:
            return refund_report(refund) or _undocumented("a refund", refund.status)
        if answer.status == _NOT_FOUND and _parse_error(answer):
            return _OTHER_ACCOUNT
        if answer.status in _REFUSING and _rejection(answer):
            return RefundReport(state=GatewayRefundState.DECLINED, detail=_error_detail(answer))
        return _unusable(answer)

    async def _find_refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundResult:
        query = {"payment_intent": request.capture.reference, "limit": str(REFUNDS_PAGE)}
        for _ in range(REFUNDS_PAGES_MAX):
            answer = await self._get(account, f"/refunds?{urlencode(query)}")
            if isinstance(answer, OutcomeUnknown):
                return answer
            if answer.status == _NOT_FOUND and _parse_error(answer):
                return _OTHER_ACCOUNT
            page = _decode(answer, StripeRefundPage)
            if page is None:
                return _unusable(answer)
            for refund in page.data:
                # A refund of the Dashboard has no id of ours, but a known reference.
                if refund_id_of(refund) == request.refund_id or refund.id == request.reference:
                    return refund_report(refund) or _undocumented("a refund", refund.status)
            if not page.has_more or not page.data:
                return _ABSENT
            query["starting_after"] = page.data[-1].id
        return inconclusive_response("too many refunds to search")

    async def _get(self, account: GatewayAccount, path: str) -> HttpResult:
        return await self._http.request("GET", _url(account, path), headers=_headers(account))

    async def _post(
        self, account: GatewayAccount, path: str, form: Mapping[str, str], key: str | None = None
    ) -> HttpResult:
        headers = _headers(account)
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        if key is not None:
            headers["Idempotency-Key"] = key
        body = urlencode(form).encode()
        return await self._http.request("POST", _url(account, path), headers=headers, body=body)


async def _in_time(work: Awaitable[R]) -> R | OutcomeUnknown:
    """Limit the total time of several requests."""
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


def _intent_path(reference: str) -> str:
    return f"/payment_intents/{quote(reference, safe='')}"


def _session_created(
    account: GatewayAccount, request: GatewaySessionRequest, intent: StripePaymentIntent
) -> SessionCreated | OutcomeUnknown:
    order = session_order(request)
    amount = str(intent.amount), intent.currency.lower()
    if session_id_of(intent) != request.session_id or not intent.client_secret:
        return inconclusive_response("the response is about another session")
    if amount != (order["amount"], order["currency"]):
        return inconclusive_response("the payment intent has a different amount")
    card: dict[str, Any] = {
        "provider": "stripe",
        "script_url": account.credentials.get("script_url") or SCRIPT_URL,
        "publishable_key": account.credentials["publishable_key"],
        "client_secret": intent.client_secret,
    }
    return SessionCreated(
        reference=intent.id, next_action={"type": "embedded_card", "embedded_card": card}
    )


def _parse_session(answer: HttpResult, requested: GatewaySessionRef) -> SessionResult:
    if isinstance(answer, OutcomeUnknown):
        return answer
    if answer.status == _NOT_FOUND and _parse_error(answer):  # not the 404 of a proxy
        return SessionReport(state=GatewaySessionState.ABSENT)
    intent = _decode(answer, StripePaymentIntent)
    if intent is None or session_id_of(intent) != requested.session_id:
        return _unusable(answer)
    return session_report(intent) or _undocumented("a payment intent", intent.status)


def _undocumented(name: str, status: str | None) -> OutcomeUnknown:
    return inconclusive_response(f"{name} is {status}")


def _decode(answer: HttpAnswer, kind: type[S]) -> S | None:
    return decode_json(answer.body, kind) if answer.status == _OK else None


def _parse_error(answer: HttpAnswer) -> StripeErrorBody | None:
    return read_error_body(answer.body)


def _rejection(answer: HttpAnswer) -> SessionRejected | None:
    """Return Stripe's definite refusal; a reused idempotency key is not definite."""
    error = _parse_error(answer)
    is_final = answer.status // 100 == 4 and answer.status not in _UNSETTLED  # noqa: PLR2004 - 4xx
    if error is None or error.type not in _REFUSALS or not is_final:
        return None
    return SessionRejected(detail=_error_detail(answer))


def _unusable(answer: HttpAnswer) -> OutcomeUnknown:
    """Return the outcome of a response without a result.

    Stripe limits requests by 429. Its own 403 means that the key lacks a permission; any other 403
    comes from a proxy, which may limit requests.
    """
    if answer.status == _FORBIDDEN and _parse_error(answer):
        return OutcomeUnknown(detail=_error_detail(answer), problem=AccountProblem.CREDENTIALS)
    if answer.status == _CONFLICT and _parse_error(answer):  # with a concurrent request of ours
        return inconclusive_response(_error_detail(answer))
    return unusable_response(answer.status, _error_detail(answer))


def _error_detail(answer: HttpAnswer) -> str:
    error = _parse_error(answer)
    if error is None:
        return f"status {answer.status}: no error message"
    words = (error.type, error.code, error.decline_code, error.param)
    return f"status {answer.status}: {' '.join(word for word in words if word)}"
