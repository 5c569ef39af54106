"""The adapter for the sandbox's simulator gateway."""

import hashlib
import hmac
import re
import time
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeGuard
from urllib.parse import quote
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from payintent.core import ids
from payintent.gateways.account_check import (
    check_response,
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
    CallbackRequest,
    CallbackResponse,
    Capture,
    CreationResult,
    FailureReason,
    GatewayAccount,
    GatewayCapabilities,
    GatewayRefundRequest,
    GatewayRefundState,
    GatewaySessionRef,
    GatewaySessionRequest,
    GatewaySessionState,
    InvalidCallbackError,
    OutcomeUnknown,
    RefundReport,
    RefundResult,
    SessionCreated,
    SessionRejected,
    SessionReport,
    SessionResult,
    VerifiedCallback,
)
from payintent.runtime.json_format import format_timestamp

CALLBACK_TOLERANCE_S = 300
DESCRIPTION_CHARS_MAX = 500
DETAIL_CHARS_MAX = 200

#: All 4xx statuses, except those after which the session may exist or may still be created.
_REJECTION_STATUSES = frozenset(range(400, 500)) - {408, 409, 425, 429}
_NOT_FOUND_STATUSES = frozenset({404})
#: The capture does not exist or its remaining amount is too small, so the refund was not made. A
#: 401 is not final, because an earlier request may have succeeded before the key was changed.
_REFUND_REJECTION_STATUSES = frozenset({404, 422})
_EVENT_ID = re.compile(r"[0-9A-Za-z_-]{1,100}")
_TIMESTAMP = re.compile(r"[0-9]{1,12}")


_STATES = {
    "open": GatewaySessionState.OPEN,
    "authorising": GatewaySessionState.AUTHORISING,
    "paid": GatewaySessionState.CAPTURED,
    "declined": GatewaySessionState.DECLINED,
    "cancelled": GatewaySessionState.CANCELLED,
    "closed": GatewaySessionState.CLOSED,
    "expired": GatewaySessionState.CLOSED,
}
_REFUND_STATES = {
    "pending": GatewayRefundState.PENDING,
    "succeeded": GatewayRefundState.DONE,
    "refused": GatewayRefundState.DECLINED,
}
_FAILURES = {
    "card_declined": FailureReason.DECLINED,
    "insufficient_funds": FailureReason.DECLINED,
    "expired_card": FailureReason.DECLINED,
    "incorrect_cvc": FailureReason.DECLINED,
    "authentication_failed": FailureReason.DECLINED,
    "processing_error": FailureReason.UNKNOWN,
}
_SESSION_EVENTS = frozenset({"session.paid", "session.declined", "session.cancelled"})
_REFUND_EVENTS = frozenset({"refund.succeeded", "refund.refused"})

_Name = Annotated[str, Meta(pattern=r"^[!-~]{1,200}\Z")]
_Amount = Annotated[int, Meta(ge=0, le=10**15)]


class _Capture(Struct, frozen=True):
    id: _Name
    amount_minor: _Amount
    currency: _Name


class _Session(Struct, frozen=True):
    id: _Name
    reference: _Name
    status: Literal["open", "authorising", "paid", "declined", "cancelled", "closed", "expired"]
    pay_url: Annotated[str, Meta(pattern=r"^https?://[^\s/]", max_length=2048)]
    amount_minor: _Amount
    currency: _Name
    capture: _Capture | None = None
    decline_code: str | None = None


class _Refund(Struct, frozen=True):
    id: _Name
    reference: _Name
    status: Literal["pending", "succeeded", "refused"]
    reason: str = ""


class _Event(Struct, frozen=True):
    type: _Name
    session: _Session | None = None
    refund: _Refund | None = None


class _ErrorBody(Struct, frozen=True):
    error: str


class SimulatorGateway:
    """The `Gateway` for the simulator. Credentials: `api_key`, `signing_secret`."""

    provider = "simulator"
    capabilities = GatewayCapabilities(
        credentials=frozenset({"api_key", "signing_secret"}),
        card_brands=("Visa", "Mastercard"),
        decimals={"USD": 2, "THB": 2, "TWD": 2, "IDR": 2, "PHP": 2, "JPY": 0},
        sandbox_only=True,
    )

    def __init__(self, http: GatewayHttpClient, now: Callable[[], float] = time.time) -> None:
        self._http = http
        self._now = now

    async def create_session(
        self, account: GatewayAccount, request: GatewaySessionRequest
    ) -> CreationResult:
        response = await self._request(account, "POST", "/sessions", _session_body(request))
        if isinstance(response, OutcomeUnknown):
            return response
        if response.status in {200, 201}:
            return _parse_creation(response, request)
        if _is_simulator_error(response, _REJECTION_STATUSES):
            return SessionRejected(detail=_error_detail(response))
        return unusable_response(response.status, _error_detail(response))

    async def close_session(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionResult:
        path = f"{_session_path(session)}/cancel"
        return _parse_session(await self._request(account, "POST", path), session, (200, 409))

    async def inquire(self, account: GatewayAccount, session: GatewaySessionRef) -> SessionResult:
        response = await self._request(account, "GET", _session_path(session))
        return _parse_session(response, session, (200,))

    def parse_callback(self, account: GatewayAccount, request: CallbackRequest) -> VerifiedCallback:
        event_id = self._verify(account, request)
        event = decode_json(request.body, _Event)
        if event is None:
            raise InvalidCallbackError("the signed body cannot be parsed")
        if event.type in _REFUND_EVENTS and event.refund:
            refund_id = ids.parse_id(ids.REFUND, event.refund.reference)
            return VerifiedCallback(
                id=event_id, refund_id=refund_id, refund=_refund_report(event.refund)
            )
        if event.type not in _SESSION_EVENTS:
            return VerifiedCallback(id=event_id)
        report = _session_report(event.session) if event.session else None
        if event.session is None or report is None:
            raise InvalidCallbackError("the signed body is inconsistent")
        session_id = ids.parse_id(ids.SESSION, event.session.reference)
        return VerifiedCallback(id=event_id, session_id=session_id, report=report)

    def acknowledge(self, callback: VerifiedCallback) -> CallbackResponse:  # noqa: ARG002 - required by the port
        return CallbackResponse(body=b'{"received":true}')

    async def refund(self, account: GatewayAccount, request: GatewayRefundRequest) -> RefundResult:
        response = await self._request(account, "POST", "/refunds", _refund_body(request))
        if _is_simulator_error(response, _REFUND_REJECTION_STATUSES):
            return RefundReport(state=GatewayRefundState.DECLINED, detail=_error_detail(response))
        return _parse_refund(response, request, (200, 201))

    async def inquire_refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundResult:
        response = await self._request(account, "GET", f"/refunds/{_refund_reference(request)}")
        if _is_simulator_error(response, _NOT_FOUND_STATUSES):
            return RefundReport(state=GatewayRefundState.ABSENT)
        return _parse_refund(response, request, (200,))

    def classify_failure(self, code: str) -> FailureReason:
        return _FAILURES.get(code, FailureReason.UNKNOWN)

    async def check_account(self, account: GatewayAccount) -> AccountCheck:
        result = await self._request(account, "GET", "/sessions/account-check")
        response = check_response(account, result, self._now())
        if isinstance(response, AccountCheck):
            return response
        if _is_simulator_error(response, _NOT_FOUND_STATUSES):
            return working_account("the simulator accepts api_key; signing_secret was not tested")
        if _is_simulator_error(response, _REJECTION_STATUSES):
            return rejected_credentials(f"the simulator rejects api_key: {_error_detail(response)}")
        return unexpected_response(account, response)

    async def _request(
        self, account: GatewayAccount, method: str, path: str, body: bytes | None = None
    ) -> HttpResult:
        headers = {"Authorization": f"Bearer {account.credentials['api_key']}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        url = f"{account.base_url.rstrip('/')}/v1{path}"
        return await self._http.request(method, url, headers=headers, body=body)

    def _verify(self, account: GatewayAccount, request: CallbackRequest) -> str:
        """Verify a callback and return its event id. Raises `InvalidCallbackError`."""
        event_id = request.headers.get("sim-id", "")
        timestamp = request.headers.get("sim-timestamp", "")
        if not _EVENT_ID.fullmatch(event_id) or not _TIMESTAMP.fullmatch(timestamp):
            raise InvalidCallbackError("sim-id or sim-timestamp is missing or malformed")
        secret = account.credentials.get("signing_secret", "").encode()
        if not secret:  # anyone could sign with an empty key
            raise InvalidCallbackError("the account has no signing secret")
        content = f"{event_id}.{timestamp}.".encode() + request.body
        expected_signature = f"v1={hmac.new(secret, content, hashlib.sha256).hexdigest()}"
        signature = request.headers.get("sim-signature", "")
        if not hmac.compare_digest(expected_signature.encode(), signature.encode(errors="replace")):
            raise InvalidCallbackError("the signature does not match this account")
        if abs(self._now() - int(timestamp)) > CALLBACK_TOLERANCE_S:
            raise InvalidCallbackError(
                f"the timestamp is not within {CALLBACK_TOLERANCE_S} s of now"
            )
        return event_id


def _session_body(request: GatewaySessionRequest) -> bytes:
    body: dict[str, Any] = {
        "reference": _session_reference(request.session_id),
        "amount_minor": request.amount_minor,
        "currency": request.currency,
        "description": request.description[:DESCRIPTION_CHARS_MAX],
        "return_url": request.return_url,
        "callback_url": request.callback_url,
        "expires_at": format_timestamp(request.expires_at),
    }
    if request.locale is not None:
        body["locale"] = request.locale
    return msgspec.json.encode(body)


def _parse_creation(
    response: HttpResponse, request: GatewaySessionRequest
) -> SessionCreated | OutcomeUnknown:
    session = decode_json(response.body, _Session)
    if session is None or session.reference != _session_reference(request.session_id):
        return unusable_response(
            response.status, f"invalid response to the creation request, status {response.status}"
        )
    if (session.amount_minor, session.currency) != (request.amount_minor, request.currency):
        return inconclusive_response("the session's amount or currency is wrong")
    return SessionCreated.redirect(session.id, session.pay_url, request.expires_at)


def _parse_session(
    response: HttpResult, session_ref: GatewaySessionRef, statuses: tuple[int, ...]
) -> SessionResult:
    if _is_simulator_error(response, _NOT_FOUND_STATUSES):
        return SessionReport(state=GatewaySessionState.ABSENT)
    if isinstance(response, OutcomeUnknown):
        return response
    session = decode_json(response.body, _Session) if response.status in statuses else None
    if session is None or session.reference != _session_reference(session_ref.session_id):
        return unusable_response(response.status, _error_detail(response))
    report = _session_report(session)
    return report or inconclusive_response("the response is inconsistent")


def _refund_body(request: GatewayRefundRequest) -> bytes:
    return msgspec.json.encode(
        {
            "reference": _refund_reference(request),
            "capture": request.capture.reference,
            "amount_minor": request.amount_minor,
            "currency": request.capture.currency,
            "callback_url": request.callback_url,
        }
    )


def _refund_reference(request: GatewayRefundRequest) -> str:
    return ids.format_id(ids.REFUND, request.refund_id)


def _parse_refund(
    response: HttpResult, request: GatewayRefundRequest, statuses: tuple[int, ...]
) -> RefundResult:
    if isinstance(response, OutcomeUnknown):
        return response
    refund = decode_json(response.body, _Refund) if response.status in statuses else None
    if refund is None or refund.reference != _refund_reference(request):
        return unusable_response(response.status, _error_detail(response))
    return _refund_report(refund)


def _refund_report(refund: _Refund) -> RefundReport:
    return RefundReport(
        state=_REFUND_STATES[refund.status], reference=refund.id, detail=refund.reason
    )


def _session_report(session: _Session) -> SessionReport | None:
    """Convert a session to a report. Returns None if its status contradicts its capture."""
    if (session.status == "paid") != (session.capture is not None):
        return None
    capture = session.capture and Capture(
        reference=session.capture.id,
        amount_minor=session.capture.amount_minor,
        currency=session.capture.currency,
    )
    return SessionReport(
        state=_STATES[session.status], capture=capture, reason=_failure_reason(session)
    )


def _failure_reason(session: _Session) -> FailureReason | None:
    if session.status != "declined":
        return None
    return _FAILURES.get(session.decline_code or "", FailureReason.UNKNOWN)


def _is_simulator_error(response: HttpResult, statuses: frozenset[int]) -> TypeGuard[HttpResponse]:
    """Return whether the error comes from the simulator itself, and not from a proxy."""
    if isinstance(response, OutcomeUnknown) or response.status not in statuses:
        return False
    return decode_json(response.body, _ErrorBody) is not None


def _error_detail(response: HttpResponse) -> str:
    body = decode_json(response.body, _ErrorBody)
    message = (body and body.error) or "no error message"
    return f"status {response.status}: {message[:DETAIL_CHARS_MAX]}"


def _session_path(session: GatewaySessionRef) -> str:
    session_id = session.reference or _session_reference(session.session_id)
    return f"/sessions/{quote(session_id, safe='')}"


def _session_reference(session_id: UUID) -> str:
    return ids.format_id(ids.SESSION, session_id)
