"""The HTTP client that sends webhooks. Every failure is returned as an `AttemptResult`."""

import asyncio
import errno
import os
import re
import ssl
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver
from aiohttp.client_proto import ResponseHandler

from payintent.http.egress import (
    HOST_CHARS_MAX,
    CheckedResolver,
    EgressRefusedError,
    EgressRules,
    Lookup,
    check_callback_url,
    make_egress_rules,
    open_checked_socket,
)
from payintent.runtime.http_session import make_exact_url
from payintent.runtime.settings import Settings
from payintent.runtime.version import API_VERSION
from payintent.runtime.waiting import release_slot
from payintent.webhooks.model import AttemptOutcome, AttemptResult, OutgoingDelivery, sign

_HEAD_BYTES_MAX = 32 * 1024  # including interim responses such as 103
_FINAL_STATUS_MIN = 200
_HEAD_END = b"\r\n\r\n"
_STATUS_LINE = re.compile(rb"HTTP/1\.[0-9] ([0-9]{3})(?:[ \t][^\r\n]*)?\r?\n")


class ResponseHead:
    """Records the first bytes of the response to the current task's request."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.response: aiohttp.ClientResponse | None = None  # once its headers are complete
        _current_head.set(self)

    def status(self) -> int | None:
        """Return the final response's status, or None if its status line is incomplete."""
        offset = 0
        while match := _STATUS_LINE.match(self.content, offset):
            status = int(match[1])
            if status >= _FINAL_STATUS_MIN:
                return status
            head_end = self.content.find(_HEAD_END, match.end() - 2)
            if head_end < 0:
                return None
            offset = head_end + len(_HEAD_END)
        return None


class RecordingConnector(aiohttp.TCPConnector):
    """A connector whose connections record responses in the current task's `ResponseHead`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)  # pyright: ignore[reportUnknownMemberType]
        self._factory = lambda: _Connection(self._loop)


_current_head: ContextVar[ResponseHead | None] = ContextVar("response_head", default=None)


class _Connection(ResponseHandler):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._head: ResponseHead | None = None

    def set_response_params(self, **params: Any) -> None:
        """Start recording; aiohttp calls this method in the task that sends the request."""
        self._head = _current_head.get()
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        if self._head is not None:
            content = self._head.content
            content += data[: _HEAD_BYTES_MAX - len(content)]
        super().data_received(data)


USER_AGENT = f"PaymentIntentService-Webhooks/{API_VERSION}"
KEEP_ALIVE_S = 30.0  # idle connections are closed, so that DNS changes take effect
HEADER_LINE_BYTES_MAX = 8 * 1024
HEADER_BYTES_MAX = 32 * 1024
DETAIL_CHARS_MAX = 200
RETRY_AFTER_DIGITS_MAX = 9
_RETRY_AFTER_CHARS_MAX = 64  # the longest HTTP date has 33 characters

_SUCCESS, _REDIRECT, _CLIENT_ERROR = 200, 300, 400
_TOO_MANY_REQUESTS, _SERVICE_UNAVAILABLE = 429, 503


class _ClientResolver(CheckedResolver, AbstractResolver):
    """Adapts `CheckedResolver` to aiohttp's resolver type."""


class _Client:
    """An HTTP client with egress rules. Its session is opened on the first send."""

    def __init__(
        self,
        settings: Settings,
        rules: EgressRules,
        lookup: Lookup | None,
        tls: ssl.SSLContext | None,
    ) -> None:
        self.rules = rules
        self._settings = settings
        self._lookup = lookup
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None
        self._resolver: _ClientResolver | None = None

    def open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            settings = self._settings
            self._resolver = _ClientResolver(
                rules=self.rules,
                timeout_s=settings.webhook_dns_timeout_s,
                lookup=self._lookup,
            )
            connector = RecordingConnector(
                resolver=self._resolver,
                use_dns_cache=False,
                socket_factory=partial(open_checked_socket, rules=self.rules),
                limit=settings.webhook_sockets_max,
                keepalive_timeout=KEEP_ALIVE_S,
                ssl=self._tls or True,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                headers={
                    "Content-Type": "application/json",
                    "User-Agent": USER_AGENT,
                    "Accept-Encoding": "identity",
                },
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=settings.webhook_connect_timeout_s
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,  # avoid decompression bombs
                trust_env=False,  # a proxy would bypass the address checks
                read_bufsize=settings.webhook_answer_bytes_max,
                max_line_size=HEADER_LINE_BYTES_MAX,
                max_field_size=HEADER_LINE_BYTES_MAX,
            )
        return self._session

    async def close(self) -> None:
        session, resolver = self._session, self._resolver
        self._session = self._resolver = None
        if session is not None:
            await session.close()
        if resolver is not None:
            await resolver.close()


class WebhookSender:
    """Sends a process's webhooks."""

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float],
        *,
        lookup: Lookup | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`clock` returns Unix seconds; `lookup` and `tls` override the system's DNS and CAs."""
        self._settings = settings
        self._clock = clock
        tls = tls or settings.client_tls
        self._client = _Client(settings, make_egress_rules(settings), lookup, tls)
        public_rules = make_egress_rules(settings, is_public_only=True)
        self._public_client = _Client(settings, public_rules, lookup, tls)

    async def send(self, delivery: OutgoingDelivery) -> AttemptResult:
        """Post a webhook within the deadline. Failures are returned, not raised."""
        loop = asyncio.get_running_loop()
        started_at, head = loop.time(), ResponseHead()
        try:
            async with asyncio.timeout(self._settings.webhook_timeout_s):
                attempt = await self._post(delivery, head)
        except Exception as error:  # noqa: BLE001 - an external server must not crash a worker
            attempt = _make_success_result(head.status())
            if attempt is None and head.response is not None:  # only the body could not be read
                attempt = self._to_result(head.response, "")
            attempt = attempt or _make_failure_result(error)
        return replace(attempt, duration_ms=round((loop.time() - started_at) * 1000))

    async def close(self) -> None:
        await self._client.close()
        await self._public_client.close()

    async def _post(self, delivery: OutgoingDelivery, head: ResponseHead) -> AttemptResult:
        client = self._public_client if delivery.is_public_only else self._client
        target = check_callback_url(delivery.url, client.rules)
        headers = _make_headers(delivery, int(self._clock()))
        release_slot()
        async with client.open_session().post(
            make_exact_url(target.url), data=delivery.body, headers=headers, allow_redirects=False
        ) as response:
            if _count_header_bytes(response) > HEADER_BYTES_MAX:
                response.close()
                return _make_success_result(response.status) or AttemptResult(
                    outcome=AttemptOutcome.BAD_RESPONSE,
                    status=response.status,
                    detail="the response headers are too large",
                )
            head.response = response
            body_start = await self._read_body_start(response)
            return self._to_result(response, body_start)

    async def _read_body_start(self, response: aiohttp.ClientResponse) -> str:
        """Read the start of the body. NUL is replaced, because PostgreSQL does not accept it."""
        chunks: list[bytes] = []
        remaining = self._settings.webhook_answer_bytes_max
        while remaining > 0 and (chunk := await response.content.read(remaining)):
            chunks.append(chunk)
            remaining -= len(chunk)
        if not response.content.at_eof():
            response.close()
        body_start = b"".join(chunks)[: self._settings.webhook_answer_kept_bytes_max]
        return body_start.decode("utf-8", errors="replace").replace("\0", "\ufffd")

    def _to_result(self, response: aiohttp.ClientResponse, body_start: str) -> AttemptResult:
        status = response.status
        if status < _SUCCESS:
            return AttemptResult(
                outcome=AttemptOutcome.BAD_RESPONSE, status=status, detail="no final response"
            )
        if status < _REDIRECT:
            return AttemptResult(outcome=AttemptOutcome.DELIVERED, status=status, answer=body_start)
        if status < _CLIENT_ERROR:
            host = _get_location_host(response.headers.get("Location", ""))
            detail = f"redirect to {host}, not followed"
            return AttemptResult(
                outcome=AttemptOutcome.REDIRECT, status=status, detail=detail, answer=body_start
            )
        retry_after_s = None
        if status in (_TOO_MANY_REQUESTS, _SERVICE_UNAVAILABLE):
            header = response.headers.get("Retry-After", "")
            retry_after_s = _parse_retry_after(header, self._clock())
        return AttemptResult(
            outcome=AttemptOutcome.HTTP_ERROR,
            status=status,
            detail=f"HTTP {status}",
            answer=body_start,
            retry_after_s=retry_after_s,
        )


def _make_success_result(status: int | None) -> AttemptResult | None:
    """Return a successful result if the status is 2xx, otherwise None."""
    if status is None or not _SUCCESS <= status < _REDIRECT:
        return None
    return AttemptResult(
        outcome=AttemptOutcome.DELIVERED,
        status=status,
        detail="accepted; the rest of the response could not be read",
    )


def _make_failure_result(error: Exception) -> AttemptResult:
    outcome, detail = _classify_error(error)
    return AttemptResult(outcome=outcome, detail=detail[:DETAIL_CHARS_MAX])


_ERRORS: tuple[tuple[type[Exception], AttemptOutcome, str], ...] = (
    (aiohttp.ConnectionTimeoutError, AttemptOutcome.TIMEOUT, "the connection timed out"),
    (TimeoutError, AttemptOutcome.TIMEOUT, "the response timed out"),
    (
        aiohttp.ServerDisconnectedError,
        AttemptOutcome.BAD_RESPONSE,
        "the connection was closed without a response",
    ),
)


def _classify_error(error: Exception) -> tuple[AttemptOutcome, str]:
    """Return the outcome and our own message, because library messages may quote the URL."""
    if isinstance(error, EgressRefusedError):
        return AttemptOutcome.BLOCKED, error.reason
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return AttemptOutcome.TLS_ERROR, _describe_tls_error(error)
    if isinstance(error, aiohttp.ClientConnectorError):
        return _classify_connect_error(error)
    for kind, outcome, detail in _ERRORS:
        if isinstance(error, kind):
            return outcome, detail
    if isinstance(error, OSError):
        return AttemptOutcome.CONNECT_ERROR, _describe_os_error(error)
    return AttemptOutcome.BAD_RESPONSE, f"the response could not be read ({type(error).__name__})"


def _classify_connect_error(error: aiohttp.ClientConnectorError) -> tuple[AttemptOutcome, str]:
    cause = error.os_error
    if isinstance(cause, EgressRefusedError):
        return AttemptOutcome.BLOCKED, cause.reason
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        if cause.errno == errno.ETIMEDOUT:
            return AttemptOutcome.TIMEOUT, "the DNS lookup timed out"
        return AttemptOutcome.CONNECT_ERROR, "the host name cannot be resolved"
    return AttemptOutcome.CONNECT_ERROR, _describe_os_error(cause)


def _describe_os_error(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno else "the connection failed"


def _describe_tls_error(error: Exception) -> str:
    cause = error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"certificate: {cause.verify_message}"
    return "the TLS handshake failed"


def _make_headers(delivery: OutgoingDelivery, timestamp_s: int) -> dict[str, str]:
    webhook_id = str(delivery.event_id)
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": sign(delivery.secrets, webhook_id, timestamp_s, delivery.body),
    }


def _count_header_bytes(response: aiohttp.ClientResponse) -> int:
    return sum(len(name) + len(value) + len(": \r\n") for name, value in response.raw_headers)


def _get_location_host(location: str) -> str:
    """Return only the host of a `Location` header, because its path may contain secrets."""
    try:
        host = urlsplit(location).hostname or "a relative URL"
    except ValueError:
        return "an invalid URL"
    return host[:HOST_CHARS_MAX].encode("ascii", errors="replace").decode()


def _parse_retry_after(retry_after: str, now_s: float) -> int | None:
    """Parse `Retry-After` as seconds or an HTTP date (RFC 9110, 10.2.3); None if invalid."""
    text = retry_after.strip()
    if len(text) > _RETRY_AFTER_CHARS_MAX:
        return None
    if text.isascii() and text.isdecimal():
        return int(text) if len(text) <= RETRY_AFTER_DIGITS_MAX else None
    try:
        date = parsedate_to_datetime(text)
        # "-0000" is parsed as a naive time; HTTP dates are in UTC.
        date_s = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0, round(date_s - now_s))
