"""A JSON-RPC endpoint with bounded, validated responses and exponential back-off after failures.

The URL often contains an API key, so it must not appear in any message, log, metric or repr.
"""

import asyncio
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from prometheus_client import Counter

from payintent.core.errors import ChainUnavailableError
from payintent.runtime.http_session import HttpSession, make_exact_url
from payintent.runtime.log import get_logger
from payintent.runtime.waiting import release_slot

if TYPE_CHECKING:
    import ssl

    import aiohttp

BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 30.0
SOCKETS_PER_ENDPOINT_MAX = 16
ROUNDS_UNTIL_LARGER_BATCH = 256

ERRORS = Counter(
    "payintent_chain_rpc_errors_total",
    "Failed requests and unusable responses by endpoint",
    ["chain", "endpoint", "kind"],
)
INCIDENTS = Counter(
    "payintent_chain_incidents_total",
    "Endpoint responses that are impossible on this chain",
    ["chain", "endpoint", "kind"],
)
WRONG_RESPONSES = Counter(
    "payintent_chain_lies_total",
    "Endpoint responses that another endpoint disproved",
    ["chain", "what"],
)

_READ_STATUSES = {200, 400, 413}  # some providers send JSON-RPC errors with 400 or 413
_TOO_MANY_REQUESTS = 429
_CHUNK_BYTES = 64 * 1024
_DOUBLINGS_MAX = 16
_RATE_LIMIT_TEXT = re.compile(r"rate.?limit|too many requests|per second", re.IGNORECASE)
_REVERT_CODE = 3
_REVERT_WORD = re.compile(r"revert", re.IGNORECASE)
_log = get_logger("chain")
_Result = TypeVar("_Result")


class RpcFault(StrEnum):
    """Endpoint faults; the last four are incidents."""

    TIMEOUT = "timeout"
    CONNECTION = "connection"
    STATUS = "status"  # an unexpected HTTP status
    THROTTLED = "throttled"
    TOO_LARGE = "too_large"
    REFUSED = "refused"  # a JSON-RPC error
    RANGE = "range"  # too many blocks in a search
    TOPICS = "topics"  # too many recipients in a search
    MALFORMED = "malformed"  # invalid JSON, wrong ids, wrong types
    WRONG_CHAIN = "wrong_chain"
    NO_FINALITY = "no_finality"  # there is no finalized block
    FINALITY = "finality"  # the latest block is reported as finalized
    LOGS = "logs"  # contradictory logs, or logs that were not requested


_INCIDENTS = {
    RpcFault.WRONG_CHAIN,
    RpcFault.NO_FINALITY,
    RpcFault.FINALITY,
    RpcFault.LOGS,
}


class RpcFaultError(Exception):
    def __init__(self, fault: RpcFault) -> None:
        super().__init__(fault.value)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class RpcCall:
    method: str
    params: Sequence[Any]


@dataclass(frozen=True, slots=True)
class RpcErrorResponse:
    """A node's error response to a call. Its text is untrusted."""

    code: int
    message: str = field(repr=False)
    data: str = field(default="", repr=False)

    @property
    def is_revert(self) -> bool:
        """Return whether a contract rejected the call. It may have chosen the message."""
        return self.code == _REVERT_CODE or bool(
            _REVERT_WORD.search(self.message) or _REVERT_WORD.search(self.data)
        )


RpcResponse = msgspec.Raw | RpcErrorResponse
TOO_LARGE = RpcErrorResponse(0, "the response exceeds our size limit")


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcLimits:
    timeout_s: float = 10.0  # per batch
    response_bytes_max: int = 32 * 1024 * 1024
    batch_max: int = 100  # calls


class _RpcError(msgspec.Struct, frozen=True):
    code: int
    message: str = ""
    data: msgspec.Raw = msgspec.Raw(b"null")


class _CallResponse(msgspec.Struct, frozen=True):
    id: int | None = None
    result: msgspec.Raw = msgspec.Raw(b"")
    error: _RpcError | None = None


_RESPONSE = msgspec.json.Decoder(_CallResponse)
_RESPONSES = msgspec.json.Decoder(list[_CallResponse])
_TEXT = msgspec.json.Decoder(str)
_UNREADABLE = (ValueError, RecursionError)  # all errors that parsing untrusted JSON can raise


class _BatchTooLargeError(Exception):
    """The batch must be smaller. If `is_permanent`, this also applies to all later batches."""

    def __init__(self, *, is_permanent: bool) -> None:
        super().__init__()
        self.is_permanent = is_permanent


def make_session(tls: "ssl.SSLContext | None") -> HttpSession:
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    return HttpSession(tls, sockets_per_host_max=SOCKETS_PER_ENDPOINT_MAX, headers=headers)


class RpcEndpoint:
    """A chain's endpoint. `clock` must be monotonic and return seconds."""

    def __init__(
        self,
        chain: str,
        name: str,
        url: str,
        *,
        limits: RpcLimits,
        session: HttpSession,
        clock: Callable[[], float],
    ) -> None:
        self.chain = chain
        self.name = name
        self.is_identified = False  # its chain has been verified since the last failure
        self.failures = 0  # consecutive
        self._url = _check_url(url, name)
        self._limits = limits
        self._session = session
        self._clock = clock
        self._backoff_until_s = 0.0
        self._batch_size = limits.batch_max
        self._successes = 0
        self._ids = itertools.count(1)
        self._logged_fault: RpcFault | None = None

    def __repr__(self) -> str:
        return f"<Endpoint {self.name}>"

    @property
    def is_backing_off(self) -> bool:
        return self.failures > 0 and self._clock() < self._backoff_until_s

    def count_fault(self, fault: RpcFault) -> None:
        counter = INCIDENTS if fault in _INCIDENTS else ERRORS
        counter.labels(self.chain, self.name, fault.value).inc()

    async def request(
        self,
        calls: Sequence[RpcCall],
        read: Callable[[list[RpcResponse]], _Result],
        timeout_s: float | None = None,
    ) -> _Result:
        """Send calls in one batch if possible, and return the result of `read(responses)`.

        If the connection or `read` fails (ValueError, RpcFaultError), the endpoint backs off, and
        the delay doubles with each failure. Failures are raised as `ChainUnavailableError`.
        """
        if self.is_backing_off:
            raise ChainUnavailableError(f"{self.name} has just failed and is backing off")
        try:
            result = read(await self._send_batches(calls, timeout_s or self._limits.timeout_s))
        except RpcFaultError as error:
            fault = error.fault
        except _UNREADABLE:
            fault = RpcFault.MALFORMED
        else:
            self._record_success()
            return result
        # Outside of `except`: a chained exception could contain the URL.
        self._record_failure(fault)
        raise ChainUnavailableError(f"{self.name} returned no usable response: {fault.value}")

    async def _send_batches(self, calls: Sequence[RpcCall], timeout_s: float) -> list[RpcResponse]:
        """Send calls in batches, and halve a batch if the node or our size limit requires it."""
        responses: list[RpcResponse] = []
        size = self._batch_size
        while batch := calls[len(responses) : len(responses) + size]:
            try:
                responses += await self._send_batch(batch, timeout_s)
            except _BatchTooLargeError as error:
                if len(batch) == 1:
                    responses.append(TOO_LARGE)
                    continue
                size = (len(batch) + 1) // 2
                if error.is_permanent:
                    self._batch_size = size
        return responses

    async def _send_batch(self, calls: Sequence[RpcCall], timeout_s: float) -> list[RpcResponse]:
        ids = [next(self._ids) for _ in calls]
        body = [
            {"jsonrpc": "2.0", "id": number, "method": call.method, "params": call.params}
            for number, call in zip(ids, calls, strict=True)
        ]
        text = await self._post(msgspec.json.encode(body if len(body) > 1 else body[0]), timeout_s)
        if text.lstrip()[:1] != b"[":
            return [_to_single_response(_RESPONSE.decode(text), ids)]
        responses = _RESPONSES.decode(text)
        if len(responses) == 1 < len(ids):  # some nodes reject a batch with a list
            return [_to_single_response(responses[0], ids)]
        by_id = {response.id: response for response in responses}
        if len(ids) == 1 or len(responses) != len(ids) or by_id.keys() != set(ids):
            raise RpcFaultError(RpcFault.MALFORMED)
        return [_to_response(by_id[number]) for number in ids]

    async def _post(self, body: bytes, timeout_s: float) -> bytes:
        import aiohttp  # imported late: most commands do not call a node

        release_slot()
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.open().post(
                    make_exact_url(self._url), data=body, allow_redirects=False
                ) as response,
            ):
                if response.status == _TOO_MANY_REQUESTS:
                    raise RpcFaultError(RpcFault.THROTTLED)
                if response.status not in _READ_STATUSES:
                    raise RpcFaultError(RpcFault.STATUS)
                return await self._read_body(response)
        except TimeoutError:
            fault = RpcFault.TIMEOUT
        except (aiohttp.ClientError, OSError, ValueError):  # ValueError: the client rejects the URL
            fault = RpcFault.CONNECTION
        raise RpcFaultError(fault)

    async def _read_body(self, response: "aiohttp.ClientResponse") -> bytes:
        body = bytearray()
        async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
            body += chunk
            if len(body) > self._limits.response_bytes_max:
                response.close()
                raise _BatchTooLargeError(is_permanent=False)
        return bytes(body)

    def _record_success(self) -> None:
        if self._logged_fault is not None:
            _log.info("chain_endpoint_recovered", chain=self.chain, endpoint=self.name)
        self.failures, self._logged_fault = 0, None
        self._successes += 1
        if self._successes % ROUNDS_UNTIL_LARGER_BATCH == 0:  # the limit may have been temporary
            self._batch_size = min(self._limits.batch_max, 2 * self._batch_size)

    def _record_failure(self, fault: RpcFault) -> None:
        backoff_s = BACKOFF_FIRST_S * 2 ** min(self.failures, _DOUBLINGS_MAX)
        self._backoff_until_s = self._clock() + min(backoff_s, BACKOFF_MAX_S)
        self.failures += 1
        self.is_identified = False  # it may serve a different chain after it recovers
        self.count_fault(fault)
        if fault is not self._logged_fault:  # log once, not at every poll
            self._logged_fault = fault
            name = "chain_incident" if fault in _INCIDENTS else "chain_endpoint_failed"
            _log.warning(name, chain=self.chain, endpoint=self.name, kind=fault.value)


def require_result(response: RpcResponse) -> msgspec.Raw:
    """Return the result of a call; an error response raises `RpcFaultError`."""
    if isinstance(response, RpcErrorResponse):
        raise RpcFaultError(RpcFault.TOO_LARGE if response is TOO_LARGE else RpcFault.REFUSED)
    return response


def _check_url(url: str, name: str) -> str:
    try:
        split_url = urlsplit(url)
        is_valid = (
            split_url.scheme in {"http", "https"}
            and bool(split_url.hostname)
            and split_url.port != 0
        )
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ValueError(f"the URL of {name} must start with http:// or https://")
    return url


def _to_single_response(reply: _CallResponse, ids: Sequence[int]) -> RpcResponse:
    """Convert a single reply: the response to a single call, or the error of a rejected batch."""
    response = _to_response(reply)
    if len(ids) == 1 and reply.id in (ids[0], None if reply.error else ids[0]):
        return response
    if isinstance(response, RpcErrorResponse) and len(ids) > 1:
        raise _BatchTooLargeError(is_permanent=True)
    raise RpcFaultError(RpcFault.MALFORMED)


def _to_response(reply: _CallResponse) -> RpcResponse:
    if reply.error is None:
        return reply.result  # decoding an empty result fails later
    error = RpcErrorResponse(reply.error.code, reply.error.message, _decode_text(reply.error.data))
    is_rate_limit = error.code == _TOO_MANY_REQUESTS or _RATE_LIMIT_TEXT.search(error.message)
    if is_rate_limit and not error.is_revert:
        raise RpcFaultError(RpcFault.THROTTLED)
    return error


def _decode_text(raw: msgspec.Raw) -> str:
    """Return an error's data if it is a string; nodes may send any JSON value."""
    try:
        return _TEXT.decode(raw)
    except _UNREADABLE:
        return ""
