"""The adapter for Stripe. Buyers confirm payment intents in Stripe's Payment Element."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from msgspec import Struct

from payintent.gateways.account_check import (
    check_response,
    plain_text,
    rejected_credentials,
    unexpected_response,
    working_account,
)
from payintent.gateways.http_client import (
    GatewayHttpClient,
    HttpResponse,
    HttpResult,
    decode_json,
    inconclusive_response,
    unusable_response,
)
from payintent.gateways.port import (
    AccountCheck,
    AccountProblem,
    CallbackRequest,
    CallbackResponse,
    CreationResult,
    FailureReason,
    GatewayAccount,
    GatewayCapabilities,
    GatewayRefundRequest,
    GatewayRefundState,
    GatewaySessionRef,
    GatewaySessionRequest,
    GatewaySessionState,
    NotContacted,
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
from payintent.gateways.stripe.api import (
    DECIMALS,
    FAILURES,
    LIMITS,
    StripeErrorBody,
    StripePaymentIntent,
    StripeRefund,
    StripeRefundPage,
    get_refund_id,
    get_session_id,
    parse_error_body,
    to_refund_report,
    to_session_report,
)
from payintent.gateways.stripe.events import (
    read_event,
    refund_form,
    refund_reference,
    session_form,
    session_reference,
    verify_signature,
)

API_VERSION = "2026-10-28.endive"
#: The Stripe.js release that matches the API version.
SCRIPT_URL = "https://js.stripe.com/endive/stripe.js"
OPERATION_TIMEOUT_S = 15.0  # total for all requests of an operation
#: Stripe deletes idempotency keys after 24 h. A later retry would create a second intent.
REPLAY_WINDOW_S = 23 * 3600
REFUND_PAGE_SIZE = 100  # Stripe's maximum
REFUND_PAGES_MAX = 10
#: `rk_` keys are restricted keys.
CREDENTIAL_PREFIXES = {
    "secret_key": ("sk_", "rk_"),
    "publishable_key": ("pk_",),
    "webhook_secret": ("whsec_",),
}

_OK = 200
_FORBIDDEN, _NOT_FOUND, _CONFLICT, _TOO_MANY_REQUESTS, _SERVER_ERROR = 403, 404, 409, 429, 500
_UNAUTHORISED_STATUSES = frozenset({401, 403})
#: After these statuses, the request may have taken effect, or may still take effect.
_UNSETTLED_STATUSES = frozenset({408, 409, 425, 429})
_INVALID_REQUEST_STATUSES = frozenset({400, 402, 404})  # Stripe accepted the API key
_REJECTION_TYPES = frozenset({"invalid_request_error", "card_error"})
_KEY_REUSE_ERROR_TYPE = "idempotency_error"

S = TypeVar("S", bound=Struct)
R = TypeVar("R")

_API = "https://api.stripe.com"
_ABSENT = RefundReport(state=GatewayRefundState.ABSENT)
#: The payment was captured, so the credentials must have been replaced by another account's
#: credentials. The refund may have been made in the previous account.
_OTHER_ACCOUNT = RefundReport(
    state=GatewayRefundState.ABSENT,
    detail="the payment does not exist in this Stripe account",
    needs_operator=True,
)


def _detect_livemode(base_url: str, credentials: Mapping[str, str]) -> bool | None:
    """Derive the mode from the secret key. Returns None if the base URL is not Stripe's."""
    return _is_live(credentials, "secret_key") if base_url.rstrip("/") == _API else None


class _Balance(Struct, tag_field="object", tag="balance"):
    livemode: bool = False


class StripeGateway:
    """The `Gateway` for Stripe.

    Credentials: `secret_key`, `publishable_key`, `webhook_secret`; optionally `script_url` for
    another source of Stripe.js. The webhook endpoint must send `payment_intent.succeeded`,
    `.payment_failed` and `.canceled`; `refund.created`, `.updated` and `.failed`;
    `radar.early_fraud_warning.created` and `.updated`; and all `charge.dispute` events.
    """

    provider = "stripe"
    capabilities = GatewayCapabilities(
        credentials=frozenset({"secret_key", "publishable_key", "webhook_secret"}),
        optional_credentials=frozenset({"script_url"}),
        decimals=DECIMALS,
        card_brands=("Visa", "Mastercard"),
        limits=LIMITS,
        origins=frozenset({_API, "https://js.stripe.com"}),
        detect_livemode=_detect_livemode,
        callback_bytes_max=256 * 1024,  # an event contains the full object with its metadata
    )

    def __init__(self, http: GatewayHttpClient, now: Callable[[], float] = time.time) -> None:
        self._http = http
        self._now = now

    async def create_session(
        self, account: GatewayAccount, request: GatewaySessionRequest
    ) -> CreationResult:
        form = session_form(request)
        response = await self._post(account, "/payment_intents", form, session_reference(request))
        if isinstance(response, OutcomeUnknown):
            return response
        intent = _decode(response, StripePaymentIntent)
        if intent is None:
            return _rejection(response) or _unusable(response)
        return _session_created(account, request, intent)

    async def close_session(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionResult:
        """Cancel a payment intent, or report its state if Stripe rejects the cancellation."""
        return await _limit_time(self._query_session(account, session, cancel=True))

    async def inquire(self, account: GatewayAccount, session: GatewaySessionRef) -> SessionResult:
        return await _limit_time(self._query_session(account, session))

    def parse_callback(self, account: GatewayAccount, request: CallbackRequest) -> VerifiedCallback:
        secret = account.credentials.get("webhook_secret", "")
        header = request.headers.get("stripe-signature", "")
        verify_signature(secret, header, request.body, self._now())
        return read_event(request.body)

    def acknowledge(self, callback: VerifiedCallback) -> CallbackResponse:  # noqa: ARG002 - required by the port
        return CallbackResponse(body=b'{"received":true}')

    async def refund(self, account: GatewayAccount, request: GatewayRefundRequest) -> RefundResult:
        """Request a refund, unless Stripe already has a refund with this id.

        The idempotency key prevents a second refund for only a day, so the existing refunds are
        searched first.
        """
        return await _limit_time(self._refund(account, request))

    async def inquire_refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundResult:
        return await _limit_time(self._find_refund(account, request))

    def classify_failure(self, code: str) -> FailureReason:
        return FAILURES.get(code, FailureReason.UNKNOWN)

    async def check_account(self, account: GatewayAccount) -> AccountCheck:
        if problem := _check_credential_format(account):
            return problem
        return _check_balance(account, await self._get(account, "/balance"), self._now())

    async def list_movements(
        self, account: GatewayAccount, since: datetime, until: datetime, after: str | None
    ) -> MovementPage | OutcomeUnknown:
        return await _limit_time(reporting.list_movements(self._get, account, since, until, after))

    async def sum_payout_fees(
        self, account: GatewayAccount, reference: str
    ) -> int | OutcomeUnknown:
        return await reporting.sum_payout_fees(self._get, account, reference)

    async def _query_session(
        self, account: GatewayAccount, session: GatewaySessionRef, *, cancel: bool = False
    ) -> SessionResult:
        reference = session.reference or await self._find_reference(account, session)
        if not isinstance(reference, str):
            return reference
        if cancel:
            response = await self._post(account, f"{_intent_path(reference)}/cancel", {})
            has_response = isinstance(response, HttpResponse)
            if not (
                has_response
                and response.status in _INVALID_REQUEST_STATUSES
                and _parse_error(response)
            ):
                return _parse_session(response, session)
            # The intent cannot be cancelled because it is paid, already cancelled or processing.
        return _parse_session(await self._get(account, _intent_path(reference)), session)

    async def _find_reference(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> str | SessionReport | OutcomeUnknown:
        """Repeat a creation request whose response was lost, and return the intent's id.

        If Stripe did not receive the first request, the second request creates the intent. This
        intent cannot be paid, because no buyer has its client secret. For the same reason, the
        session is closed when its request can no longer be repeated.
        """
        if self._now() - session.opened_at.timestamp() > REPLAY_WINDOW_S:
            return SessionReport(state=GatewaySessionState.CLOSED)
        response = await self._post(
            account, "/payment_intents", session_form(session), session_reference(session)
        )
        if isinstance(response, OutcomeUnknown):
            return response
        intent = _decode(response, StripePaymentIntent)
        if intent and get_session_id(intent) == session.session_id:
            return intent.id
        if response.status in _INVALID_REQUEST_STATUSES and _rejection(response):
            return SessionReport(state=GatewaySessionState.ABSENT)
        error = _parse_error(response)
        is_repeated = response.status >= _SERVER_ERROR
        if error is not None and (is_repeated or error.type == _KEY_REUSE_ERROR_TYPE):
            # Not an outage. For a day, Stripe repeats its first response, also a server error.
            return inconclusive_response(_error_detail(response))
        return _unusable(response)

    async def _refund(self, account: GatewayAccount, request: GatewayRefundRequest) -> RefundResult:
        existing_refund = await self._find_refund(account, request)
        if existing_refund != _ABSENT:
            return existing_refund
        response = await self._post(
            account, "/refunds", refund_form(request), refund_reference(request)
        )
        if isinstance(response, OutcomeUnknown):
            return response
        refund = _decode(response, StripeRefund)
        if refund and get_refund_id(refund) == request.refund_id:
            return to_refund_report(refund) or _unknown_status("a refund", refund.status)
        if response.status == _NOT_FOUND and _parse_error(response):
            return _OTHER_ACCOUNT
        if response.status in _INVALID_REQUEST_STATUSES and _rejection(response):
            return RefundReport(state=GatewayRefundState.DECLINED, detail=_error_detail(response))
        return _unusable(response)

    async def _find_refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundResult:
        query = {"payment_intent": request.capture.reference, "limit": str(REFUND_PAGE_SIZE)}
        for _ in range(REFUND_PAGES_MAX):
            response = await self._get(account, f"/refunds?{urlencode(query)}")
            if isinstance(response, OutcomeUnknown):
                return response
            if response.status == _NOT_FOUND and _parse_error(response):
                return _OTHER_ACCOUNT
            page = _decode(response, StripeRefundPage)
            if page is None:
                return _unusable(response)
            if (refund := _find_requested_refund(page, request)) is not None:
                return to_refund_report(refund) or _unknown_status("a refund", refund.status)
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
        response = await self._http.request("POST", _url(account, path), headers=headers, body=body)
        is_response = isinstance(response, HttpResponse)
        if is_response and response.status == _TOO_MANY_REQUESTS and _parse_error(response):
            return NotContacted(detail=_error_detail(response), is_throttled=True)  # not executed
        return response


async def _limit_time(work: Awaitable[R]) -> R | OutcomeUnknown:
    """Limit the total duration of an operation's requests."""
    try:
        async with asyncio.timeout(OPERATION_TIMEOUT_S):
            return await work
    except TimeoutError:
        return OutcomeUnknown(detail=f"not finished within {OPERATION_TIMEOUT_S:g} s")


def _find_requested_refund(
    page: StripeRefundPage, request: GatewayRefundRequest
) -> StripeRefund | None:
    for refund in page.data:
        # A refund made in the Dashboard does not have our id, but its reference is known.
        if get_refund_id(refund) == request.refund_id or refund.id == request.reference:
            return refund
    return None


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
    form = session_form(request)
    amount = str(intent.amount), intent.currency.lower()
    if get_session_id(intent) != request.session_id or not intent.client_secret:
        return inconclusive_response("the response is about another session")
    if amount != (form["amount"], form["currency"]):
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


def _parse_session(response: HttpResult, session: GatewaySessionRef) -> SessionResult:
    if isinstance(response, OutcomeUnknown):
        return response
    # Stripe itself, not a proxy. Stripe keeps intents, so the credentials must have been replaced.
    if response.status == _NOT_FOUND and _parse_error(response):
        return inconclusive_response("the payment intent does not exist in this Stripe account")
    intent = _decode(response, StripePaymentIntent)
    if intent is None or get_session_id(intent) != session.session_id:
        return _unusable(response)
    return to_session_report(intent) or _unknown_status("a payment intent", intent.status)


def _unknown_status(object_name: str, status: str | None) -> OutcomeUnknown:
    return inconclusive_response(f"{object_name} has the unknown status {status}")


def _decode(response: HttpResponse, model: type[S]) -> S | None:
    return decode_json(response.body, model) if response.status == _OK else None


def _parse_error(response: HttpResponse) -> StripeErrorBody | None:
    return parse_error_body(response.body)


def _rejection(response: HttpResponse) -> SessionRejected | None:
    """Return the rejection, or None if it is not final, as for a reused idempotency key."""
    error = _parse_error(response)
    is_final = response.status // 100 == 4 and response.status not in _UNSETTLED_STATUSES  # noqa: PLR2004 - 4xx
    if error is None or error.type not in _REJECTION_TYPES or not is_final:
        return None
    return SessionRejected(detail=_error_detail(response))


def _unusable(response: HttpResponse) -> OutcomeUnknown:
    """Build the outcome for a response without a result.

    Stripe throttles with status 429. A 403 from Stripe means that the key lacks a permission. Any
    other 403 comes from a proxy, which may be throttling.
    """
    if response.status == _FORBIDDEN and _parse_error(response):
        return OutcomeUnknown(detail=_error_detail(response), problem=AccountProblem.CREDENTIALS)
    if response.status == _CONFLICT and _parse_error(response):  # a concurrent request of ours
        return inconclusive_response(_error_detail(response))
    return unusable_response(response.status, _error_detail(response))


def _error_detail(response: HttpResponse) -> str:
    error = _parse_error(response)
    if error is None:
        return f"status {response.status}: no error message"
    codes = (error.type, error.code, error.decline_code, error.param)
    return f"status {response.status}: {' '.join(code for code in codes if code)}"


def _check_credential_format(account: GatewayAccount) -> AccountCheck | None:
    """Return a problem if a credential has the wrong prefix or the keys' modes differ."""
    for name, prefixes in CREDENTIAL_PREFIXES.items():
        if not account.credentials.get(name, "").startswith(prefixes):
            return rejected_credentials(f"{name} does not start with {' or '.join(prefixes)}")
    modes = {_is_live(account.credentials, name) for name in ("secret_key", "publishable_key")}
    if len(modes) > 1:
        return rejected_credentials(
            "secret_key and publishable_key must both be live or both be test keys"
        )
    return None


def _is_live(credentials: Mapping[str, str], name: str) -> bool:
    """Return whether a key is a live key, such as `sk_live_…`."""
    return "_live_" in credentials.get(name, "")[:9]


def _check_balance(account: GatewayAccount, result: HttpResult, now: float) -> AccountCheck:
    response = check_response(account, result, now)
    if isinstance(response, AccountCheck):
        return response
    error = _parse_error(response)
    if error is not None and response.status in _UNAUTHORISED_STATUSES:
        code = plain_text(error.code or error.type or "")
        return rejected_credentials(
            f"Stripe rejects secret_key: status {response.status} {code}".rstrip()
        )
    if response.status != _OK or decode_json(response.body, _Balance) is None:
        return unexpected_response(account, response)
    mode = "live" if _is_live(account.credentials, "secret_key") else "test"
    return working_account(f"Stripe accepts the {mode} secret_key; webhook_secret was not tested")
