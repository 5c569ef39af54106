"""HTTP connections: header limits, timeouts, malformed HTTP, and request smuggling."""

import asyncio
from uuid import uuid4

import pytest

from payintent.runtime.settings import Settings
from tests.http.wire import Wire, exchange
from tests.support.arrange import count, document
from tests.support.world import Api

pytestmark = pytest.mark.full

_HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
_BODY = document()
_LENGTH = str(len(_BODY)).encode()
_CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(_BODY), _BODY)
_SECOND = _HEALTH + b"\r\n"
_KIB = 1024


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"header_timeout_s": 0.3})


def _create(api: Api, extra: bytes, body: bytes) -> bytes:
    return (
        b"POST /v1/payments HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer %b\r\nIdempotency-Key: %b\r\n%b\r\n%b"
        % (api.world.api_key.encode(), str(uuid4()).encode(), extra, body)
    )


_SMUGGLED = {
    "length and chunked": (
        b"Content-Length: " + _LENGTH + b"\r\nTransfer-Encoding: chunked",
        _CHUNKED,
    ),
    "chunked and length": (b"Transfer-Encoding: chunked\r\nContent-Length: 4", _CHUNKED),
    "length twice": (b"Content-Length: " + _LENGTH + b"\r\nContent-Length: " + _LENGTH, _BODY),
    "two lengths": (b"Content-Length: " + _LENGTH + b"\r\nContent-Length: 0", _BODY),
    "list of lengths": (b"Content-Length: " + _LENGTH + b", " + _LENGTH, _BODY),
    "length with a sign": (b"Content-Length: +" + _LENGTH, _BODY),
    "negative length": (b"Content-Length: -1", _BODY),
    "hexadecimal length": (b"Content-Length: 0x10", _BODY),
    "length beyond every limit": (b"Content-Length: " + b"9" * 40, _BODY),
    "unknown coding": (b"Transfer-Encoding: xchunked", _CHUNKED),
    "identity": (b"Transfer-Encoding: identity", _BODY),
    "chunked is not last": (b"Transfer-Encoding: chunked, identity", _CHUNKED),
    "chunked twice": (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", _CHUNKED),
    "space before the colon": (b"Transfer-Encoding : chunked", _CHUNKED),
    "vertical tab": (b"Transfer-Encoding: \x0bchunked", _CHUNKED),
    "folded": (b"Transfer-Encoding:\r\n chunked", _CHUNKED),
    "folded before": (b"X: a\r\n b\r\nContent-Length: " + _LENGTH, _BODY),
    "bare CR": (b"X: a\rTransfer-Encoding: chunked", _CHUNKED),
    "NUL in a header": (b"X: a\0b\r\nContent-Length: " + _LENGTH, _BODY),
    "no colon": (b"Content-Length\r\nContent-Length: " + _LENGTH, _BODY),
    "bad chunk size": (b"Transfer-Encoding: chunked", b"zz\r\n" + _BODY),
    "chunk size with 0x": (b"Transfer-Encoding: chunked", b"0x5\r\nabcde\r\n0\r\n\r\n"),
    "huge chunk size": (b"Transfer-Encoding: chunked", b"F" * 17 + b"\r\nabcde\r\n0\r\n\r\n"),
}


async def test_requests_with_ambiguous_framing_are_refused(api: Api) -> None:
    statuses = {}
    for name, (headers, body) in _SMUGGLED.items():
        async with Wire(api.base) as wire:
            await wire.send(_create(api, headers + b"\r\n", body + _SECOND))
            statuses[name] = [answer.status for answer in await wire.answers()]
    assert statuses == {name: [400] for name in _SMUGGLED}
    assert await count(api) == 0


async def test_a_request_with_bare_line_feeds_is_refused(api: Api) -> None:
    request = _create(api, b"Content-Length: " + _LENGTH + b"\r\n", _BODY).replace(b"\r\n", b"\n")
    answer = await exchange(api.base, request + _SECOND)
    assert answer is not None
    assert answer.status == 400
    assert await count(api) == 0


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /health z HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /healthz HTTP/3.7\r\nHost: x\r\n\r\n",
        b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GARBAGE\r\n\r\n",
    ],
    ids=["TLS", "HTTP/2", "bytes in path", "space in path", "HTTP/3.7", "CONNECT", "garbage"],
)
async def test_malformed_http_gets_a_json_error(api: Api, data: bytes) -> None:
    answer = await exchange(api.base, data)
    assert answer is not None
    assert answer.status == 400
    assert answer.json == {"code": "BAD_REQUEST", "message": "malformed HTTP request"}
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["connection"] == "close"
    assert answer.headers["x-request-id"]


@pytest.mark.parametrize(
    ("line", "headers"),
    [
        (b"GET /v1/payments HTTP/1.1", []),
        (b"GET /v1/payments HTTP/1.1", [b"X-Forwarded-Host: x"]),
        (b"GET /v1/payments HTTP/1.1", [b"Connection: Upgrade", b"Upgrade: h2c"]),
        (b"GET /v1/payments HTTP/1.1", [b"Host: x", b"Host: y"]),
        (b"GET /v1/payments HTTP/1.1", [b"Host: x", b"Accept: */*", b"HOST: x"]),
        (b"GET /v1/payments HTTP/1.0", [b"Host: x", b"Host: y"]),
        (b"GET /v1/payments HTTP/1.1", [b"Host:"]),
        (b"GET /v1/payments HTTP/1.1", [b"Host: x, y"]),
        (b"GET /v1/payments HTTP/1.1", [b"Host: x,y"]),
        (b"GET /v1/payments HTTP/1.1", [b"Host: x y"]),
        (b"GET /v1/payments HTTP/1.1", [b"Host: x/y"]),
        (b"GET /v1/payments HTTP/1.1", [b"Host: http://x"]),
        (b"GET /v1/payments HTTP/1.1", [b"Host: me@x"]),
        (b"GET /v1/payments HTTP/1.1", [b"Host: x:port"]),
        (b"GET /v1/payments HTTP/1.1", [b"Host: \xe4"]),
        (b"GET http://y/v1/payments HTTP/1.1", [b"Host: x"]),
        (b"GET HTTP://x@y/v1/payments HTTP/1.1", [b"Host: x"]),
        (b"GET http://y?/v1/payments HTTP/1.1", [b"Host: x"]),
    ],
    ids=str,
)
async def test_a_request_without_exactly_one_valid_host_is_refused(
    api: Api, line: bytes, headers: list[bytes]
) -> None:
    answer = await exchange(api.base, b"\r\n".join([line, *headers, b"", b""]) + _SECOND)
    assert answer is not None
    assert (answer.status, answer.json["code"]) == (400, "BAD_REQUEST")
    assert answer.json["message"] == "a request must have exactly one valid Host header"
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize(
    ("line", "headers"),
    [
        (b"GET /healthz HTTP/1.0", []),
        (b"GET /healthz HTTP/1.1", [b"Host: pay.example.com"]),
        (b"GET /healthz HTTP/1.1", [b"Host: pay_1.internal.:8080"]),
        (b"GET /healthz HTTP/1.1", [b"Host: 192.0.2.1:80"]),
        (b"GET /healthz HTTP/1.1", [b"Host: [2001:db8::1]:8080"]),
        (b"GET http://X:8080/healthz HTTP/1.1", [b"Host: x:8080"]),
    ],
    ids=str,
)
async def test_every_valid_form_of_a_host_is_accepted(
    api: Api, line: bytes, headers: list[bytes]
) -> None:
    answer = await exchange(api.base, b"\r\n".join([line, *headers, b"", b""]))
    assert answer is not None
    assert answer.status == 200


async def test_headers_are_limited_to_32_kib(api: Api) -> None:
    for size, status in ((31 * _KIB, 200), (33 * _KIB, 431)):
        for request in (
            _HEALTH + b"X: " + b"a" * size + b"\r\n\r\n",
            _HEALTH + b"X: a\r\n" * (size // 6) + b"\r\n",
            b"GET /healthz?" + b"a" * size + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        ):
            answer = await exchange(api.base, request)
            assert answer is not None
            assert answer.status == status
            if status == 431:
                assert answer.json["code"] == "BAD_REQUEST"
                assert answer.headers["x-request-id"]


async def test_headers_that_arrive_in_pieces_count_against_the_limit(api: Api) -> None:
    async with Wire(api.base) as wire:
        await wire.send(_HEALTH)
        answering = asyncio.create_task(wire.answer())
        for _ in range(40):
            await wire.send(b"X: " + b"a" * 1_000 + b"\r\n")
        answer = await answering
    assert answer is not None
    assert answer.status == 431


async def test_the_next_request_on_a_connection_has_the_same_limits(api: Api) -> None:
    async with Wire(api.base) as wire:
        for _ in range(3):
            await wire.send(_HEALTH + b"X: " + b"a" * 20_000 + b"\r\n\r\n")
            answer = await wire.answer()
            assert answer is not None
            assert answer.status == 200
        await wire.send(_HEALTH + b"X: " + b"a" * 33 * _KIB + b"\r\n\r\n")
        answer = await wire.answer()
        assert answer is not None
        assert answer.status == 431


@pytest.mark.parametrize(
    "endless", [b"0\r\nX: ", b"5;", b"00000000"], ids=["trailer", "extension", "size"]
)
async def test_trailers_chunk_extensions_and_chunk_sizes_are_limited(
    api: Api, endless: bytes
) -> None:
    async with Wire(api.base) as wire:
        await wire.send(_create(api, b"Transfer-Encoding: chunked\r\n", endless))
        piece = (b"0" if endless[0:2] == b"00" else b"a") * 16 * _KIB
        for _ in range(64):
            await wire.send(piece)
        assert [
            answer.status for answer in await wire.answers() if answer.status not in {400, 431}
        ] == []
    assert await count(api) == 0


async def test_a_body_in_one_byte_chunks_is_accepted(api: Api) -> None:
    body = document(x='"' + "x" * 60_000 + '"')
    pieces = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    answer = await exchange(api.base, _create(api, b"Transfer-Encoding: chunked\r\n", pieces))
    assert answer is not None
    assert answer.status == 201


async def test_headers_that_take_too_long_time_out(api: Api) -> None:
    answer = await exchange(api.base, _HEALTH)
    assert answer is not None
    assert (answer.status, answer.json["code"]) == (408, "BAD_REQUEST")
    async with Wire(api.base) as silent:
        assert await silent.answer() is None  # without a request, there is no response
    async with Wire(api.base) as second:
        await second.send(_SECOND)
        first_answer = await second.answer()
        assert first_answer is not None
        assert first_answer.status == 200
        await second.send(_HEALTH)
        answer = await second.answer()
        assert answer is not None
        assert answer.status == 408


async def test_a_slow_body_is_not_subject_to_the_header_timeout(api: Api) -> None:
    async with Wire(api.base) as wire:
        await wire.send(_create(api, b"Content-Length: " + _LENGTH + b"\r\n", _BODY[:1]))
        with pytest.raises(TimeoutError):
            await wire.answer(timeout_s=0.5)
        await wire.send(_BODY[1:])
        answer = await wire.answer()
    assert answer is not None
    assert answer.status == 201


async def test_a_client_that_disconnects_during_the_body_creates_nothing(api: Api) -> None:
    async with Wire(api.base) as wire:
        await wire.send(_create(api, b"Content-Length: 5000\r\n", _BODY))
    assert (await api.send("GET", "/healthz")).status == 200
    assert await count(api) == 0


async def test_a_body_that_is_announced_as_too_large_is_refused_before_it_is_sent(api: Api) -> None:
    extra = b"Expect: 100-continue\r\nContent-Length: 65537\r\n"
    answer = await exchange(api.base, _create(api, extra, b""))
    assert answer is not None
    assert (answer.status, answer.json["code"]) == (413, "BAD_REQUEST")


async def test_pipelined_requests_are_answered_in_order(api: Api) -> None:
    missing = b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"
    last = _HEALTH + b"Connection: close\r\n\r\n"
    async with Wire(api.base) as wire:
        await wire.send(_SECOND + missing + last)
        assert [answer.status for answer in await wire.answers()] == [200, 404, 200]


async def test_the_headers_of_a_pipelined_request_time_out(api: Api) -> None:
    async with Wire(api.base) as wire:
        await wire.send(_SECOND + _HEALTH)
        assert [answer.status for answer in await wire.answers()] == [200, 408]


async def test_an_http_1_0_client_gets_no_interim_response(api: Api) -> None:
    extra = b"Expect: 100-continue\r\nContent-Length: %b\r\n" % _LENGTH
    request = _create(api, extra, _BODY).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    answer = await exchange(api.base, request)
    assert answer is not None
    assert answer.status == 201


async def test_trailers_are_not_treated_as_headers(api: Api) -> None:
    """A proxy checks and replaces headers, but may pass trailers on."""
    head, _, body = _create(api, b"Transfer-Encoding: chunked\r\n", _CHUNKED).partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    for name in (b"Authorization", b"Idempotency-Key"):
        [field] = [line for line in lines if line.startswith(name)]
        headers = b"\r\n".join(line for line in lines if line != field)
        answer = await exchange(api.base, headers + b"\r\n\r\n" + body[:-2] + field + b"\r\n\r\n")
        assert answer is not None
        assert answer.status == (401 if name == b"Authorization" else 400)
    assert await count(api) == 0
