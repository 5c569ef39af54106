"""One JSON-RPC endpoint: its answers are bounded and checked; it pauses after a failure.

Its URL often contains a key, so the URL is in no name, message, log, metric or representation.
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

from payintent.domain.errors import ChainUnavailableError
from payintent.exact_url import exact_url
from payintent.log import get_logger
from payintent.slot import release_slot

if TYPE_CHECKING:
    import ssl

    import aiohttp

REST_FIRST_S = 0.05
REST_MAX_S = 30.0
SOCKETS_PER_ENDPOINT_MAX = 16
ROUNDS_UNTIL_LARGER_BATCH = 256

ERRORS = Counter(
    "payintent_chain_rpc_errors_total",
    "Calls that an endpoint did not answer, or not usably",
    ["chain", "endpoint", "kind"],
)
INCIDENTS = Counter(
    "payintent_chain_incidents_total",
    "Answers of an endpoint that cannot be true of this chain",
    ["chain", "endpoint", "kind"],
)
WRONG_ANSWERS = Counter(
    "payintent_chain_lies_total",
    "What an endpoint said and another one disproved",
    ["chain", "what"],
)

_READ_STATUSES = {200, 400, 413}  # some providers send a JSON-RPC error with such a status
_TOO_MANY = 429
_PIECE_BYTES = 64 * 1024
_DOUBLINGS_MAX = 16
_TOO_MANY_WORDS = re.compile(r"rate.?limit|too many requests|per second", re.IGNORECASE)
_log = get_logger("chain")
_Told = TypeVar("_Told")


class RpcFault(StrEnum):
    """What is wrong with an endpoint; the last five are incidents."""

    TIMEOUT = "timeout"
    CONNECTION = "connection"
    STATUS = "status"  # of HTTP
    THROTTLED = "throttled"
    TOO_LARGE = "too_large"
    REFUSED = "refused"  # a JSON-RPC error
    RANGE = "range"  # too many blocks for one search
    MALFORMED = "malformed"  # no JSON, other ids, wrong types
    WRONG_CHAIN = "wrong_chain"
    WRONG_GENESIS = "wrong_genesis"
    NO_FINALITY = "no_finality"  # it has no finalized block
    FINALITY = "finality"  # it takes its latest block for finalized
    LOGS = "logs"  # logs that no chain can have


_INCIDENTS = {
    RpcFault.WRONG_CHAIN,
    RpcFault.WRONG_GENESIS,
    RpcFault.NO_FINALITY,
    RpcFault.FINALITY,
    RpcFault.LOGS,
}


class RpcAnswerError(Exception):
    def __init__(self, fault: RpcFault) -> None:
        super().__init__(fault.value)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class RpcCall:
    method: str
    params: Sequence[Any]


@dataclass(frozen=True, slots=True)
class RpcErrorAnswer:
    """The error with which a node answers a call; its text is not ours."""

    code: int
    message: str = field(repr=False)
    data: str = field(default="", repr=False)


RpcAnswer = msgspec.Raw | RpcErrorAnswer
TOO_LARGE = RpcErrorAnswer(0, "the answer is larger than we read")


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcLimits:
    timeout_s: float = 10.0  # of one round
    answer_bytes_max: int = 32 * 1024 * 1024
    batch_max: int = 100  # calls


class _ErrorAnswer(msgspec.Struct, frozen=True):
    code: int
    message: str = ""
    data: msgspec.Raw = msgspec.Raw(b"null")


class _CallAnswer(msgspec.Struct, frozen=True):
    id: int | None = None
    result: msgspec.Raw = msgspec.Raw(b"")
    error: _ErrorAnswer | None = None


_ONE = msgspec.json.Decoder(_CallAnswer)
_MANY = msgspec.json.Decoder(list[_CallAnswer])
_TEXT = msgspec.json.Decoder(str)
_UNREADABLE = (ValueError, RecursionError)  # whatever parsing foreign JSON can raise


class _SmallerBatchError(Exception):
    """A batch must be smaller; `refused` tells that the node wants it smaller for good."""

    def __init__(self, *, refused: bool) -> None:
        super().__init__()
        self.refused = refused


class RpcEndpoint:
    """One endpoint of a chain; `clock` is in seconds and may begin anywhere."""

    def __init__(
        self,
        chain: str,
        name: str,
        url: str,
        *,
        limits: RpcLimits,
        session: Callable[[], "aiohttp.ClientSession"],
        clock: Callable[[], float],
    ) -> None:
        self.chain = chain
        self.name = name
        self.identified = False  # as an endpoint of this chain, since its last failure
        self.fails = 0  # in a row
        self._url = _checked(url, name)
        self._limits = limits
        self._session = session
        self._clock = clock
        self._rests_until_s = 0.0
        self._batch = limits.batch_max
        self._rounds = 0
        self._ids = itertools.count(1)
        self._known: RpcFault | None = None  # the fault that the log has reported last

    def __repr__(self) -> str:
        return f"<Endpoint {self.name}>"

    @property
    def rests(self) -> bool:
        return self.fails > 0 and self._clock() < self._rests_until_s

    def count(self, fault: RpcFault) -> None:
        counter = INCIDENTS if fault in _INCIDENTS else ERRORS
        counter.labels(self.chain, self.name, fault.value).inc()

    async def ask(
        self,
        calls: Sequence[RpcCall],
        read: Callable[[list[RpcAnswer]], _Told],
        timeout_s: float | None = None,
    ) -> _Told:
        """Send calls in one batch if possible, and return what `read` makes of the answers.

        Every failure counts, whether of the connection or of `read` (ValueError, RpcAnswerError):
        the endpoint then pauses, twice as long each time. All are raised as
        `ChainUnavailableError`.
        """
        if self.rests:
            raise ChainUnavailableError(f"{self.name} failed a moment ago and is left alone")
        try:
            answer = read(await self._answers(calls, timeout_s or self._limits.timeout_s))
        except RpcAnswerError as failed:
            fault = failed.fault
        except _UNREADABLE:
            fault = RpcFault.MALFORMED
        else:
            self._worked()
            return answer
        # Outside of `except`: a chained exception could contain the URL.
        self._failed(fault)
        raise ChainUnavailableError(f"{self.name} gives no usable answer: {fault.value}")

    async def _answers(self, calls: Sequence[RpcCall], timeout_s: float) -> list[RpcAnswer]:
        """Send calls in batches, smaller ones where the node or our limit requires that."""
        answers: list[RpcAnswer] = []
        size = self._batch
        while part := calls[len(answers) : len(answers) + size]:
            try:
                answers += await self._round(part, timeout_s)
            except _SmallerBatchError as smaller:
                if len(part) == 1:  # nothing is smaller than one
                    answers.append(TOO_LARGE)
                    continue
                size = (len(part) + 1) // 2
                if smaller.refused:
                    self._batch = size
        return answers

    async def _round(self, calls: Sequence[RpcCall], timeout_s: float) -> list[RpcAnswer]:
        ids = [next(self._ids) for _ in calls]
        body = [
            {"jsonrpc": "2.0", "id": number, "method": call.method, "params": call.params}
            for number, call in zip(ids, calls, strict=True)
        ]
        text = await self._post(msgspec.json.encode(body if len(body) > 1 else body[0]), timeout_s)
        if text.lstrip()[:1] != b"[":
            return [_read_single(_ONE.decode(text), ids)]
        listed = _MANY.decode(text)
        by_id = {answer.id: answer for answer in listed}
        if len(ids) == 1 or len(listed) != len(ids) or by_id.keys() != set(ids):
            raise RpcAnswerError(RpcFault.MALFORMED)
        return [_answer(by_id[number]) for number in ids]

    async def _post(self, body: bytes, timeout_s: float) -> bytes:
        import aiohttp  # imported when used: most commands call no node

        release_slot()
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session().post(
                    exact_url(self._url), data=body, allow_redirects=False
                ) as response,
            ):
                if response.status == _TOO_MANY:
                    raise RpcAnswerError(RpcFault.THROTTLED)
                if response.status not in _READ_STATUSES:
                    raise RpcAnswerError(RpcFault.STATUS)
                return await self._read(response)
        except TimeoutError:
            fault = RpcFault.TIMEOUT
        except (aiohttp.ClientError, OSError, ValueError):  # an invalid URL may be found only here
            fault = RpcFault.CONNECTION
        raise RpcAnswerError(fault)

    async def _read(self, response: "aiohttp.ClientResponse") -> bytes:
        body = bytearray()
        async for piece in response.content.iter_chunked(_PIECE_BYTES):
            body += piece
            if len(body) > self._limits.answer_bytes_max:
                response.close()
                raise _SmallerBatchError(refused=False)
        return bytes(body)

    def _worked(self) -> None:
        if self._known is not None:
            _log.info("chain_endpoint_recovered", chain=self.chain, endpoint=self.name)
        self.fails, self._known = 0, None
        self._rounds += 1
        if self._rounds % ROUNDS_UNTIL_LARGER_BATCH == 0:  # the limit may have been temporary
            self._batch = min(self._limits.batch_max, 2 * self._batch)

    def _failed(self, fault: RpcFault) -> None:
        rest_s = REST_FIRST_S * 2 ** min(self.fails, _DOUBLINGS_MAX)
        self._rests_until_s = self._clock() + min(rest_s, REST_MAX_S)
        self.fails += 1
        self.identified = False  # the endpoint that returns may be on another chain
        self.count(fault)
        if fault is not self._known:  # once, not at every poll
            self._known = fault
            name = "chain_incident" if fault in _INCIDENTS else "chain_endpoint_failed"
            _log.warning(name, chain=self.chain, endpoint=self.name, kind=fault.value)


def open_http_session(tls: "ssl.SSLContext | None") -> "aiohttp.ClientSession":
    """Open the HTTP client of a chain; without `tls` it trusts the system's authorities."""
    import aiohttp

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit_per_host=SOCKETS_PER_ENDPOINT_MAX, ssl=tls or True),
        headers={"Content-Type": "application/json", "Accept-Encoding": "identity"},
        timeout=aiohttp.ClientTimeout(total=None),  # each round has its own
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,  # a few bytes may inflate to gigabytes
    )


def result(answer: RpcAnswer) -> msgspec.Raw:
    """Return the result of a call that nodes do not refuse (`RpcAnswerError`)."""
    if isinstance(answer, RpcErrorAnswer):
        raise RpcAnswerError(RpcFault.TOO_LARGE if answer is TOO_LARGE else RpcFault.REFUSED)
    return answer


def _checked(url: str, name: str) -> str:
    try:
        parts = urlsplit(url)
        fine = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine:
        raise ValueError(f"the address of {name} is no http or https URL")
    return url


def _read_single(reply: _CallAnswer, ids: Sequence[int]) -> RpcAnswer:
    """Read an answer that is no list: of a single call, or a refusal of the whole batch."""
    answer = _answer(reply)
    if len(ids) == 1 and reply.id in (ids[0], None if reply.error else ids[0]):
        return answer
    if isinstance(answer, RpcErrorAnswer) and len(ids) > 1:
        raise _SmallerBatchError(refused=True)
    raise RpcAnswerError(RpcFault.MALFORMED)


def _answer(reply: _CallAnswer) -> RpcAnswer:
    if reply.error is None:
        return reply.result  # an empty result is no JSON either: its reader raises
    error = RpcErrorAnswer(reply.error.code, reply.error.message, _text(reply.error.data))
    if error.code == _TOO_MANY or _TOO_MANY_WORDS.search(error.message):
        raise RpcAnswerError(RpcFault.THROTTLED)
    return error


def _text(raw: msgspec.Raw) -> str:
    """Return the data of an error where it is a text; nodes put anything there."""
    try:
        return _TEXT.decode(raw)
    except _UNREADABLE:
        return ""
