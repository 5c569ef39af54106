"""The shop's calls to the payment service: create a payment, read it, refund it."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

import aiohttp

TIMEOUT_S = 10.0
TRIES_MAX = 3
RETRY_WAIT_MAX_S = 5.0
_CREATED, _OK = 201, 200


class PaymentApiError(Exception):
    """The payment service rejected a request or did not respond; `code` gives the reason."""

    def __init__(self, code: str, message: str, request_id: str = "") -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.request_id = request_id


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: dict[str, Any]
    request_id: str
    retry_after_s: float | None


class PaymentApi:
    """A client for the payment service with the merchant's API key, which stays on this server."""

    def __init__(self, http: aiohttp.ClientSession, api_url: str, api_key: str) -> None:
        self._http = http
        self._payments = f"{api_url.rstrip('/')}/payments"
        self._authorization = f"Bearer {api_key}"

    async def create(self, key: UUID, request: dict[str, Any]) -> dict[str, Any]:
        """Create a payment. Retries use the same idempotency key. Raises `PaymentApiError`."""
        return await self._create(key, "", request)

    async def refund(self, key: UUID, payment_id: str, amount: str) -> dict[str, Any]:
        """Request a refund. Its outcome appears later in the payment. Raises `PaymentApiError`."""
        return await self._create(key, f"/{payment_id}/refunds", {"amount": amount})

    async def _create(self, key: UUID, path: str, request: dict[str, Any]) -> dict[str, Any]:
        headers = {"Idempotency-Key": str(key)}
        for _ in range(TRIES_MAX - 1):
            try:
                answer = await self._ask("POST", path, headers, request)
            except PaymentApiError:
                continue  # the outcome is unknown; the same key makes a retry safe
            if answer.retry_after_s is None:
                return _expect(answer, _CREATED)
            await asyncio.sleep(min(answer.retry_after_s, RETRY_WAIT_MAX_S))
        return _expect(await self._ask("POST", path, headers, request), _CREATED)

    async def read(self, payment_id: str) -> dict[str, Any]:
        """Read the current state of a payment. Raises `PaymentApiError`."""
        return _expect(await self._ask("GET", f"/{payment_id}", {}, None), _OK)

    async def _ask(
        self, method: str, path: str, headers: dict[str, str], body: dict[str, Any] | None
    ) -> _Answer:
        headers = {"Authorization": self._authorization, **headers}
        url = self._payments + path
        try:
            async with self._http.request(
                method, url, headers=headers, json=body, allow_redirects=False
            ) as answer:
                return _Answer(
                    answer.status,
                    _object(await answer.read()),
                    answer.headers.get("X-Request-Id", ""),
                    _seconds(answer.headers.get("Retry-After", "")),
                )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise PaymentApiError("NO_ANSWER", "the payment service did not respond") from error


def open_http() -> aiohttp.ClientSession:
    """Open the connections to the payment service."""
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=TIMEOUT_S), cookie_jar=aiohttp.DummyCookieJar()
    )


def _expect(answer: _Answer, status: int) -> dict[str, Any]:
    # If fraud screening denies a payment, the response is 200 with `fds` instead of a payment.
    refused = answer.body.get("fds", answer.body)
    if answer.status == status and refused is answer.body:
        return answer.body
    code, message = str(refused.get("code", "UNKNOWN")), str(refused.get("message", ""))
    raise PaymentApiError(code, message or f"status {answer.status}", answer.request_id)


def _object(raw: bytes) -> dict[str, Any]:
    try:
        read: Any = json.loads(raw)
    except ValueError:
        return {}
    return cast("dict[str, Any]", read) if isinstance(read, dict) else {}


def _seconds(text: str) -> float | None:
    return float(text) if text.isascii() and text.isdecimal() else None
