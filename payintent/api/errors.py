"""The table from error codes to HTTP statuses, and the handler of each exception."""

import secrets
from collections.abc import Mapping
from http import HTTPStatus
from typing import cast

from prometheus_client import Counter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from payintent.api.application import ErrorHandler
from payintent.api.call_log import ERROR_CODE
from payintent.api.refusal_log import RefusalLog
from payintent.domain.errors import (
    ErrorCode,
    InvalidTextError,
    LockTimeoutError,
    RefusedError,
    StorageUnavailableError,
)
from payintent.domain.fraud import FraudDeniedError
from payintent.encryption import EncryptionKeyError
from payintent.json_format import encode_json
from payintent.log import get_logger
from payintent.payments.serialization import denial_fields

_log = get_logger("api")
#: What is said where something sealed does not open.
UNREADABLE = "this is stored sealed and cannot be opened: the operator of the service has to act"

BUGS = Counter("payintent_bugs_total", "Requests answered 500, for a defect of the service")

STATUS: dict[ErrorCode, int] = {
    ErrorCode.BAD_REQUEST: 400,
    ErrorCode.INVALID_AMOUNT: 422,  # 400 where the text could not be read, see `http_status`
    ErrorCode.INVALID_CURRENCY: 400,
    ErrorCode.UNAUTHORIZED: 401,
    ErrorCode.FORBIDDEN: 403,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.CHECKOUT_NOT_FOUND: 404,
    ErrorCode.PAYMENT_METHOD_NOT_FOUND: 404,
    ErrorCode.CONFLICT: 409,
    ErrorCode.IDEMPOTENCY_CONFLICT: 409,
    ErrorCode.INVALID_CHECKOUT_STATE: 409,
    ErrorCode.INVALID_PAYMENT_STATE: 409,
    ErrorCode.INVALID_TRANSITION: 409,
    ErrorCode.REFUND_EXCEEDS_REMAINING: 409,
    ErrorCode.CHECKOUT_EXPIRED: 410,
    ErrorCode.SESSION_GONE: 410,
    ErrorCode.UNPROCESSABLE: 422,
    ErrorCode.UNSUPPORTED_CURRENCY: 422,
    ErrorCode.UNSUPPORTED_COUNTRY: 422,
    ErrorCode.PAYMENT_TOKEN_NOT_AVAILABLE: 422,
    ErrorCode.PG_NOT_AVAILABLE: 422,
    ErrorCode.RATE_LIMITED: 429,
    ErrorCode.INTERNAL_ERROR: 500,
    ErrorCode.SERVER_ERROR: 500,
    ErrorCode.NOT_IMPLEMENTED: 501,
    ErrorCode.PG_UPSTREAM_ERROR: 502,
    ErrorCode.SERVICE_UNAVAILABLE: 503,
    ErrorCode.REFUND_PROVIDER_UNAVAILABLE: 503,
}
_MALFORMED_STATUS = 400
RETRY_AFTER_S = 1  # where a lock was waited for
_AGAIN_MAX_S = 5


def again_s() -> int:
    """Return seconds to come back after; random, so that not all clients come back at once."""
    return 1 + secrets.randbelow(_AGAIN_MAX_S)


def http_status(refused: RefusedError) -> int:
    """Return the HTTP status of a refusal."""
    return _MALFORMED_STATUS if refused.malformed else STATUS[refused.code]


def error_response(
    code: ErrorCode, message: str, status: int | None = None, retry_after_s: int | None = None
) -> Response:
    """Answer with the error body of spec section 7.1."""
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    return _ErrorResponse(code, message, STATUS[code] if status is None else status, headers)


class _ErrorResponse(Response):
    """An error body; the log of calls reads its code from the scope of the request."""

    def __init__(
        self, code: ErrorCode, message: str, status: int, headers: Mapping[str, str]
    ) -> None:
        body = encode_json({"code": code, "message": message})
        super().__init__(body, status, headers, "application/json")
        self._code = code

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[ERROR_CODE] = self._code
        await super().__call__(scope, receive, send)


async def on_refused(_: Request, exc: Exception) -> Response:
    """Answer a refusal with its code, message and headers."""
    refused = cast("RefusedError", exc)
    return error_response(
        refused.code, refused.message, http_status(refused), refused.retry_after_s
    )


async def on_denied(_: Request, exc: Exception) -> Response:
    """Answer a denial by fraud screening: a 200 with the denial, as spec section 7.4 requires."""
    denied = cast("FraudDeniedError", exc)
    headers = {"Idempotency-Replayed": "true"} if denied.replayed else None
    return Response(encode_json(denial_fields(denied.denial)), 200, headers, "application/json")


async def on_storage_down(request: Request, exc: Exception) -> Response:
    """Answer 503 with Retry-After: whether this attempt was stored is unknown."""
    code = ErrorCode.SERVICE_UNAVAILABLE
    refusal_log(request).note(code, str(exc))
    return error_response(code, "temporarily unavailable", retry_after_s=again_s())


def refusal_log(request: Request) -> RefusalLog:
    """Return the log of requests that were refused because the database is away."""
    return cast("RefusalLog", request.app.state.refusals)


async def on_lock_timeout(_: Request, exc: Exception) -> Response:
    """Answer that another request is working on the same object."""
    del exc
    return error_response(
        ErrorCode.CONFLICT, "another request is working on this", retry_after_s=RETRY_AFTER_S
    )


async def on_not_storable(_: Request, exc: Exception) -> Response:
    """Answer that a text cannot be stored."""
    del exc
    return error_response(
        ErrorCode.BAD_REQUEST, "the request holds text that is not valid JSON or Unicode"
    )


async def on_http(_: Request, exc: Exception) -> Response:
    """Answer what the framework refuses: unknown routes and methods."""
    failed = cast("HTTPException", exc)
    if failed.status_code == HTTPStatus.NOT_FOUND:
        return error_response(ErrorCode.NOT_FOUND, "no such route")
    answer = error_response(ErrorCode.BAD_REQUEST, failed.detail, failed.status_code)
    answer.headers.update(failed.headers or {})
    return answer


async def on_unreadable(request: Request, exc: Exception) -> Response:
    """Answer that something sealed does not open."""
    note_unreadable(request, exc)
    return error_response(ErrorCode.INTERNAL_ERROR, UNREADABLE)


def note_unreadable(request: Request, exc: Exception) -> None:
    """Log what does not open, for the operator alone."""
    _log.error("sealed_unreadable", method=request.method, why=str(exc))


async def on_bug(request: Request, exc: Exception) -> Response:
    """Answer an unexpected exception."""
    note_bug(request, exc)
    return error_response(ErrorCode.INTERNAL_ERROR, "internal error")


def note_bug(request: Request, exc: Exception) -> None:
    """Log an unexpected exception, without its message, which may quote whole rows."""
    BUGS.inc()
    _log.error("bug", method=request.method, exc_info=exc)


HANDLERS: Mapping[type[Exception], ErrorHandler] = {
    RefusedError: on_refused,
    FraudDeniedError: on_denied,
    StorageUnavailableError: on_storage_down,
    LockTimeoutError: on_lock_timeout,
    InvalidTextError: on_not_storable,
    EncryptionKeyError: on_unreadable,
    HTTPException: on_http,
}
