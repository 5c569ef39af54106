"""Send requests, and verify that the complete response arrives in time and matches the request."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

import httpx

from payintent_sdk.calls import Call
from payintent_sdk.errors import NoAnswerError

_CONNECT_FIRST_S = 1.0  # distinguishes unsent requests from unanswered requests
_REQUEST_ID = "X-Request-Id"


class AnswerMismatchError(httpx.RemoteProtocolError):
    """The response has the request id of a different request."""


#: Errors whose messages come from the operating system or this SDK. Other messages may contain
#: headers.
_WITHOUT_HEADERS = (
    httpx.NetworkError,
    httpx.TimeoutException,
    httpx.UnsupportedProtocol,
    AnswerMismatchError,
)


def create_no_answer_error(message: str, error: httpx.RequestError) -> NoAnswerError:
    """Return the error for a failed request. Its message does not contain headers."""
    is_safe = isinstance(error, _WITHOUT_HEADERS)
    reason = (str(error) if is_safe else "") or type(error).__name__
    failure = NoAnswerError(f"{message}: {reason}")
    failure.__cause__ = error if is_safe else None
    failure.__suppress_context__ = True
    return failure


def build_request(
    http: httpx.Client | httpx.AsyncClient, call: Call[Any], timeout_s: float
) -> httpx.Request:
    """Build the request for an attempt, with an id that the response must repeat."""
    headers = {_REQUEST_ID: uuid.uuid4().hex}
    if call.body is not None:
        headers["Content-Type"] = "application/json"
    if call.key is not None:
        headers["Idempotency-Key"] = call.key
    return http.build_request(
        call.method,
        call.path,
        params=dict(call.query),
        content=call.body,
        headers=headers,
        timeout=httpx.Timeout(timeout_s, read=timeout_s + call.wait_s),
    )


def send(http: httpx.Client, request: httpx.Request, whole_s: float) -> httpx.Response:
    """Send a request and read the complete response.

    Raises `httpx.RequestError` on a timeout, or if the response belongs to a different request.
    """
    over_at = time.monotonic() + whole_s
    parts: list[bytes] = []
    answer = http.send(request, stream=True)
    try:
        _check_request_id(request, answer)
        for part in answer.iter_raw():
            parts.append(part)
            if time.monotonic() > over_at:
                raise _too_slow(request, whole_s)
    finally:
        answer.close()
    content = b"".join(parts)
    return httpx.Response(
        answer.status_code, headers=answer.headers, content=content, request=request
    )


async def send_async(
    http: httpx.AsyncClient, request: httpx.Request, whole_s: float
) -> httpx.Response:
    """Send a request like `send`, but asynchronously."""
    try:
        return await asyncio.wait_for(_send_async(http, request), whole_s + _CONNECT_FIRST_S)
    except asyncio.TimeoutError:
        raise _too_slow(request, whole_s) from None


async def _send_async(http: httpx.AsyncClient, request: httpx.Request) -> httpx.Response:
    answer = await http.send(request, stream=True)
    try:
        _check_request_id(request, answer)
        await answer.aread()
    finally:
        await answer.aclose()
    return answer


def _check_request_id(request: httpx.Request, answer: httpx.Response) -> None:
    """Reject the response to a different request. A proxy's response may lack an id."""
    request_id = answer.headers.get(_REQUEST_ID)
    if request_id is not None and request_id != request.headers[_REQUEST_ID]:
        raise AnswerMismatchError("the response belongs to a different request", request=request)


def _too_slow(request: httpx.Request, whole_s: float) -> httpx.ReadTimeout:
    return httpx.ReadTimeout(
        f"the complete response took longer than {whole_s:g} s", request=request
    )
