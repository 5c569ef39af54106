"""The one table from error codes to HTTP, and how each failure is answered."""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from payintent.domain.errors import Code, LockTimeout, NotStorable, Refused, StorageDown
from payintent.domain.fraud import Denied
from payintent.log import get
from payintent.payments.fraud_screening import denial_fields
from payintent.payments.serialization import encode

_log = get("api")

STATUS: dict[Code, int] = {
    Code.BAD_REQUEST: 400,
    Code.INVALID_AMOUNT: 422,  # 400 where the text could not be read, see `status_of`
    Code.INVALID_CURRENCY: 400,
    Code.UNAUTHORIZED: 401,
    Code.FORBIDDEN: 403,
    Code.NOT_FOUND: 404,
    Code.CHECKOUT_NOT_FOUND: 404,
    Code.PAYMENT_METHOD_NOT_FOUND: 404,
    Code.CONFLICT: 409,
    Code.IDEMPOTENCY_CONFLICT: 409,
    Code.INVALID_CHECKOUT_STATE: 409,
    Code.INVALID_PAYMENT_STATE: 409,
    Code.INVALID_TRANSITION: 409,
    Code.REFUND_EXCEEDS_REMAINING: 409,
    Code.CHECKOUT_EXPIRED: 410,
    Code.SESSION_GONE: 410,
    Code.UNPROCESSABLE: 422,
    Code.UNSUPPORTED_CURRENCY: 422,
    Code.UNSUPPORTED_COUNTRY: 422,
    Code.PAYMENT_TOKEN_NOT_AVAILABLE: 422,
    Code.PG_NOT_AVAILABLE: 422,
    Code.RATE_LIMITED: 429,
    Code.INTERNAL_ERROR: 500,
    Code.SERVER_ERROR: 500,
    Code.NOT_IMPLEMENTED: 501,
    Code.PG_UPSTREAM_ERROR: 502,
    Code.SERVICE_UNAVAILABLE: 503,
    Code.REFUND_PROVIDER_UNAVAILABLE: 503,
}
_MALFORMED_STATUS = 400
RETRY_AFTER_S = 1


def status_of(refused: Refused) -> int:
    """Give the HTTP status of a refusal."""
    return _MALFORMED_STATUS if refused.malformed else STATUS[refused.code]


def error(
    code: Code, message: str, status: int | None = None, retry_after_s: int | None = None
) -> Response:
    """Answer with the error body of spec section 7.1."""
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    return Response(
        encode({"code": code, "message": message}),
        STATUS[code] if status is None else status,
        headers,
        "application/json",
    )


async def on_refused(_: Request, exc: Exception) -> Response:
    """Tell the caller why we decline."""
    refused = cast("Refused", exc)
    return error(refused.code, refused.message, status_of(refused), refused.retry_after_s)


async def on_denied(_: Request, exc: Exception) -> Response:
    """Tell the caller that fraud screening blocks this: a 200, as spec section 7.4 has it."""
    denied = cast("Denied", exc)
    headers = {"Idempotency-Replayed": "true"} if denied.replayed else None
    return Response(encode(denial_fields(denied.denial)), 200, headers, "application/json")


async def on_storage_down(_: Request, exc: Exception) -> Response:
    """Tell the caller to come back: nothing of this attempt is promised."""
    _log.error("storage_down", why=str(exc))
    return error(Code.SERVICE_UNAVAILABLE, "temporarily unavailable", retry_after_s=RETRY_AFTER_S)


async def on_lock_timeout(_: Request, exc: Exception) -> Response:
    """Tell the caller that another request is at the same thing."""
    del exc
    return error(Code.CONFLICT, "another request is working on this", retry_after_s=RETRY_AFTER_S)


async def on_not_storable(_: Request, exc: Exception) -> Response:
    """Tell the caller that a text is no text."""
    del exc
    return error(Code.BAD_REQUEST, "the request holds text that is not valid JSON or Unicode")


async def on_http(request: Request, exc: Exception) -> Response:
    """Answer what the framework declines: unknown routes and methods."""
    failed = cast("HTTPException", exc)
    if failed.status_code == HTTPStatus.NOT_FOUND:
        return error(Code.NOT_FOUND, "no such route")
    answer = error(Code.BAD_REQUEST, failed.detail, failed.status_code)
    answer.headers.update(failed.headers or {})
    if failed.status_code == HTTPStatus.METHOD_NOT_ALLOWED and "Allow" in answer.headers:
        # The framework names the methods of one route, and a path may have several.
        answer.headers["Allow"] = ", ".join(_allowed(request) or [answer.headers["Allow"]])
    return answer


def _allowed(request: Request) -> list[str]:
    routes = cast("Starlette", request.app).routes
    found = [
        route.methods or set[str]()
        for route in routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
    ]
    return sorted(set[str]().union(*found))


async def on_bug(request: Request, exc: Exception) -> Response:
    """Answer a bug of ours; the log says where it is, and no message: those quote whole rows."""
    _log.error("bug", method=request.method, exc_info=exc)
    return error(Code.INTERNAL_ERROR, "internal error")


HANDLERS: Mapping[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
    Refused: on_refused,
    Denied: on_denied,
    StorageDown: on_storage_down,
    LockTimeout: on_lock_timeout,
    NotStorable: on_not_storable,
    HTTPException: on_http,
    Exception: on_bug,
}
