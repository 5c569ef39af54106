"""The response of each interface if a handler fails: its status, retry delay and message."""

from collections.abc import Awaitable, Callable

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message
from structlog.testing import capture_logs

from payintent.checkout.rendering import with_error_pages
from payintent.console.access import console_page
from payintent.core.errors import (
    ErrorCode,
    InvalidTextError,
    LockTimeoutError,
    RefusedError,
    StorageFullError,
    StorageUnavailableError,
)
from payintent.http.application import RoutedApplication
from payintent.http.bodies import BodyTooLargeError
from payintent.http.errors import HANDLERS, RefusalLog, on_bug
from payintent.portal.visits import portal_page
from payintent.runtime.encryption import EncryptionKeyError

Handler = Callable[[Request], Awaitable[Response]]
_RETRY_DELAYS = frozenset("12345")
_LIMITED = RefusedError(ErrorCode.RATE_LIMITED, "slow down", retry_after_s=7)
_UNKNOWN = RefusedError(ErrorCode.CHECKOUT_NOT_FOUND, "no such checkout")
#: Each exception with its status, `Retry-After`, and the logged events.
_FAILURES: tuple[tuple[Exception, int, frozenset[str], list[str]], ...] = (
    (StorageUnavailableError("gone"), 503, _RETRY_DELAYS, ["storage_down"]),
    (StorageFullError("full"), 503, _RETRY_DELAYS, ["storage_down"]),
    (LockTimeoutError(), 409, frozenset("1"), []),
    (InvalidTextError(), 400, frozenset(), []),
    (BodyTooLargeError(), 413, frozenset(), []),
    (EncryptionKeyError("no key"), 500, frozenset(), ["sealed_unreadable"]),
    (_LIMITED, 429, frozenset("7"), []),
    (_UNKNOWN, 404, frozenset(), []),
    (RuntimeError("secret row"), 500, frozenset(), ["bug"]),
)
_MESSAGES: dict[str, tuple[str, ...]] = {
    "api": (
        *("the service is temporarily unavailable", "the service is temporarily unavailable"),
        *("another request is changing the same data", "text that is not valid JSON or Unicode"),
        *("the body is too large", "cannot be decrypted"),
        *("slow down", "no such checkout", "internal error"),
    ),
    "console": (
        *("the database is temporarily unavailable", "the database is temporarily unavailable"),
        *(
            "another request is changing the same data",
            "the form contains text that cannot be stored",
        ),
        *("the form is too large", "cannot be decrypted"),
        *("slow down", "no such checkout", "see the log for details"),
    ),
    "portal": (
        *("Try again in a few seconds.", "Try again in a few seconds."),
        "Another request is changing the same data.",
        "The text contains characters that cannot be stored.",
        *("The form is too large.", "Contact your payment service provider."),
        *("slow down", "no such checkout", "Something went wrong."),
    ),
    "checkout": ("",) * 9,
}
_INTERFACES: dict[str, Callable[[Handler], Handler]] = {
    "api": lambda handler: handler,
    "console": console_page,
    "portal": portal_page,
    "checkout": with_error_pages,
}


async def _respond(interface: str, failure: Exception) -> tuple[int, dict[bytes, bytes], str]:
    async def fail(_: Request) -> Response:
        raise failure

    app = RoutedApplication(
        [Route("/c/{checkout_id}", _INTERFACES[interface](fail))], HANDLERS, on_bug
    )
    app.state.refusals = RefusalLog()
    head: Message = {}
    body = b""

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal head, body
        if message["type"] == "http.response.start":
            head = message
        else:
            body += message.get("body", b"")

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/c/cs_1",
        "headers": [],
        "query_string": b"lang=en",
        "app": app,
    }
    await app(scope, receive, send)
    return head["status"], dict(head["headers"]), body.decode()


@pytest.mark.parametrize("number", range(len(_FAILURES)))
@pytest.mark.parametrize("interface", _INTERFACES)
async def test_every_interface_reports_a_failure_with_the_same_status_and_its_own_message(
    interface: str, number: int
) -> None:
    failure, status, retry_after, events = _FAILURES[number]
    with capture_logs() as logs:
        actual_status, headers, body = await _respond(interface, failure)
    assert actual_status == status
    actual_delay = headers.get(b"retry-after", b"").decode()
    assert actual_delay in retry_after if retry_after else not actual_delay
    assert _MESSAGES[interface][number] in body
    assert "secret row" not in body
    is_json = headers[b"content-type"] == b"application/json"
    assert is_json is (interface == "api")
    assert [line["event"] for line in logs if line["event"] in _EVENTS] == events


_EVENTS = frozenset({"storage_down", "sealed_unreadable", "bug"})
#: For each exception, whether the checkout offers a retry.
_OFFERS_RETRY = (True, True, True, True, False, False, True, False, True)


@pytest.mark.parametrize("number", range(len(_FAILURES)))
async def test_the_checkout_offers_a_retry_unless_a_retry_cannot_help(number: int) -> None:
    _, _, body = await _respond("checkout", _FAILURES[number][0])
    assert ('href="/c/cs_1' in body) is _OFFERS_RETRY[number]
