"""Error responses: the HTTP status of each error code, and the mapping from exceptions."""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from contextvars import Context
from dataclasses import dataclass, replace
from functools import wraps
from http import HTTPStatus
from typing import cast

from prometheus_client import Counter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from payintent.core.errors import (
    ErrorCode,
    InvalidTextError,
    LockTimeoutError,
    RefusedError,
    StorageUnavailableError,
)
from payintent.http.application import ErrorHandler, Handler
from payintent.http.bodies import BodyTooLargeError, WrongContentTypeError
from payintent.runtime.encryption import EncryptionKeyError
from payintent.runtime.json_format import encode_json
from payintent.runtime.log import get_logger

_PERIOD_S = 1.0


REFUSALS = Counter(
    "payintent_database_refusals_total",
    "Requests refused because the database was unavailable",
    ["code"],
)


class RefusalLog:
    """Logs the first refusal for each reason immediately, then a count of refusals per second."""

    def __init__(self, period_s: float = _PERIOD_S) -> None:
        self._period_s = period_s
        self._counts: dict[tuple[ErrorCode, str], int] = {}  # not yet logged

    def record(self, code: ErrorCode, reason: str) -> None:
        REFUSALS.labels(code).inc()
        if (code, reason) in self._counts:
            self._counts[code, reason] += 1
        else:
            self._log_count(code, reason, 1)

    def flush(self) -> None:
        """Log the remaining counts. Call this before the process stops."""
        counts, self._counts = self._counts, {}
        for (code, reason), count in counts.items():
            if count:
                _log.error("storage_down", code=code, why=reason, count=count)

    def _log_count(self, code: ErrorCode, reason: str, count: int) -> None:
        _log.error("storage_down", code=code, why=reason, count=count)
        self._counts[code, reason] = 0
        # Use an empty context, because the next log line does not belong to this request.
        asyncio.get_running_loop().call_later(
            self._period_s, self._end_period, code, reason, context=Context()
        )

    def _end_period(self, code: ErrorCode, reason: str) -> None:
        count = self._counts.pop((code, reason), 0)
        if count:
            self._log_count(code, reason, count)


#: Scope key: the code of an error response, for the merchants' API call log.
ERROR_CODE = "payintent.error_code"
_log = get_logger("api")

BUGS = Counter("payintent_bugs_total", "Requests that received status 500 because of a bug")

STATUS_BY_CODE: dict[ErrorCode, int] = {
    ErrorCode.BAD_REQUEST: 400,
    ErrorCode.INVALID_AMOUNT: 422,  # 400 if the amount is malformed; see `get_http_status`
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
_RETRY_MAX_S = 5


@dataclass(frozen=True, slots=True)
class Failure:
    """The response to an exception. HTML pages replace some messages."""

    exception_type: type[Exception]
    code: ErrorCode
    status: int
    message: str
    retry_after_s: int | None = None


#: Failures by exception class. `Exception` covers bugs in the service.
FAILURES: Mapping[type[Exception], Failure] = {
    failure.exception_type: failure
    for failure in (
        Failure(
            StorageUnavailableError,
            ErrorCode.SERVICE_UNAVAILABLE,
            503,
            "the service is temporarily unavailable; try again later",
        ),
        Failure(
            LockTimeoutError,
            ErrorCode.CONFLICT,
            409,
            "another request is changing the same data",
            1,
        ),
        Failure(
            InvalidTextError,
            ErrorCode.BAD_REQUEST,
            400,
            "the request contains text that is not valid JSON or Unicode",
        ),
        Failure(BodyTooLargeError, ErrorCode.BAD_REQUEST, 413, "the body is too large"),
        Failure(
            WrongContentTypeError,
            ErrorCode.BAD_REQUEST,
            415,
            "Content-Type must be application/json, without Content-Encoding",
        ),
        Failure(
            EncryptionKeyError,
            ErrorCode.INTERNAL_ERROR,
            500,
            "stored data cannot be decrypted; contact the operator of this service",
        ),
        Failure(Exception, ErrorCode.INTERNAL_ERROR, 500, "internal error"),
    )
}


def random_retry_s() -> int:
    """Return a random `Retry-After` value, so that clients do not all retry at once."""
    return 1 + secrets.randbelow(_RETRY_MAX_S)


def get_http_status(error: RefusedError) -> int:
    return _MALFORMED_STATUS if error.is_malformed else STATUS_BY_CODE[error.code]


def report_failure(request: Request, error: Exception) -> Failure:
    """Return the failure for an exception, and log it if it needs the operator's attention.

    If the database is unavailable, the request may or may not have been stored.
    """
    if isinstance(error, RefusedError):
        status = get_http_status(error)
        return Failure(RefusedError, error.code, status, error.message, error.retry_after_s)
    failure = next(FAILURES[base] for base in type(error).__mro__ if base in FAILURES)
    if failure.exception_type is StorageUnavailableError:
        cast("RefusalLog", request.app.state.refusals).record(failure.code, str(error))
        return replace(failure, retry_after_s=random_retry_s())
    if failure.exception_type is EncryptionKeyError:
        _log.error("sealed_unreadable", method=request.method, why=str(error))
    elif failure.exception_type is Exception:
        _report_bug(request, error)
    return failure


def render_failures(render: Callable[[Request, Failure], Response]) -> Callable[[Handler], Handler]:
    """Decorate a handler so that exceptions are rendered as HTML pages instead of JSON."""

    def decorate(handler: Handler) -> Handler:
        @wraps(handler)
        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except Exception as error:  # noqa: BLE001 - reported and rendered
                failure = report_failure(request, error)
                response = render(request, failure)
                if failure.retry_after_s is not None:
                    response.headers["Retry-After"] = str(failure.retry_after_s)
                return response

        return handle

    return decorate


def error_response(
    code: ErrorCode, message: str, status: int | None = None, retry_after_s: int | None = None
) -> Response:
    """Build an error response (spec section 7.1)."""
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    return _ErrorResponse(
        code, message, STATUS_BY_CODE[code] if status is None else status, headers
    )


class _ErrorResponse(Response):
    """An error response that also stores its code in the scope, for the API call log."""

    def __init__(
        self, code: ErrorCode, message: str, status: int, headers: Mapping[str, str]
    ) -> None:
        body = encode_json({"code": code, "message": message})
        super().__init__(body, status, headers, "application/json")
        self._code = code

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[ERROR_CODE] = self._code
        await super().__call__(scope, receive, send)


async def on_failure(request: Request, exc: Exception) -> Response:
    failure = report_failure(request, exc)
    return error_response(failure.code, failure.message, failure.status, failure.retry_after_s)


async def on_http_exception(_: Request, exc: Exception) -> Response:
    """Respond to an unknown path or an unsupported method."""
    error = cast("HTTPException", exc)
    if error.status_code == HTTPStatus.NOT_FOUND:
        return error_response(ErrorCode.NOT_FOUND, "no such route")
    response = error_response(ErrorCode.BAD_REQUEST, error.detail, error.status_code)
    response.headers.update(error.headers or {})
    return response


async def on_bug(request: Request, exc: Exception) -> Response:
    _report_bug(request, exc)
    return error_response(ErrorCode.INTERNAL_ERROR, FAILURES[Exception].message)


def _report_bug(request: Request, exc: Exception) -> None:
    """Log an unexpected exception. Its message is omitted, because it may quote database rows."""
    BUGS.inc()
    _log.error("bug", method=request.method, exc_info=exc)


HANDLERS: Mapping[type[Exception], ErrorHandler] = {
    **{kind: on_failure for kind in (RefusedError, *FAILURES) if kind is not Exception},
    HTTPException: on_http_exception,
}
