"""Requests to upgrade to another protocol are handled as normal requests."""

import json
from uuid import uuid4

import pytest

from tests.http.wire import Wire, WireAnswer
from tests.refunds.requests import REFUNDS, kept, paid
from tests.support.arrange import count
from tests.support.world import Answer, Api

pytestmark = pytest.mark.full

_PART = b'{"amount":"90.00"}'
#: As Java's HttpClient and `curl --http2` ask over plain http, and a browser for a web socket.
_WISHES = {
    "h2c": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n",
    "websocket": b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
    "unknown": b"Connection: keep-alive, UPGRADE\r\nUpgrade: tls/1.0, x\r\n",
    "twice": b"Upgrade: h2c\r\nConnection: upgrade\r\nUpgrade: websocket\r\n",
}
_HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"


def refund(api: Api, created: Answer, headers: bytes) -> bytes:
    """The head of a `POST …/refunds` request with these additional headers."""
    path = REFUNDS.format(payment_id=created.json["id"])
    return (
        b"POST %b HTTP/1.1\r\nHost: pay.example.com\r\nAuthorization: Bearer %b\r\n"
        b"Idempotency-Key: %b\r\nContent-Type: application/json\r\n%b\r\n"
        % (path.encode(), api.world.api_key.encode(), str(uuid4()).encode(), headers)
    )


def chunked(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


def only(answers: list[WireAnswer | None]) -> list[tuple[int, str | None]]:
    return [
        (answer.status, answer.json.get("amount") or answer.json.get("code"))
        for answer in answers
        if answer
    ]


@pytest.mark.parametrize("wish", _WISHES.values(), ids=_WISHES)
@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_a_refund_that_asks_for_an_upgrade_refunds_its_part_and_no_more(
    api: Api, wish: bytes, framing: str
) -> None:
    created = await paid(api)
    head, body = (
        (refund(api, created, wish + b"Content-Length: %d\r\n" % len(_PART)), _PART)
        if framing == "length"
        else (refund(api, created, wish + b"Transfer-Encoding: chunked\r\n"), chunked(_PART))
    )
    for pieces in ([head, body], [head + body], [head, body[:5], body[5:]]):
        async with Wire(api.base) as wire:
            for piece in pieces:
                await wire.send(piece)
                await wire.settle()
            first = await wire.answer()
            await wire.send(_HEALTH + b"\r\n")
            assert only([first, await wire.answer()]) == [(201, "90.00"), (200, None)]
    [refunded] = await kept(api.world)  # three times the same key
    assert refunded["amount"] == 90


@pytest.mark.parametrize("wish", _WISHES.values(), ids=_WISHES)
async def test_what_follows_a_request_that_asked_for_an_upgrade_is_the_next_request(
    api: Api, wish: bytes
) -> None:
    asking = _HEALTH + wish + b"\r\n"
    async with Wire(api.base) as wire:
        await wire.send(asking + asking + _HEALTH + b"Connection: close\r\n\r\n")
        assert [answer.status for answer in await wire.answers()] == [200, 200, 200]


async def test_a_body_behind_an_upgrade_is_never_read_as_a_request(api: Api) -> None:
    created = await paid(api)
    inner = refund(api, created, b"Content-Length: 0\r\n")
    wish = _WISHES["h2c"] + b"Content-Length: %d\r\n" % len(inner)
    async with Wire(api.base) as wire:
        await wire.send(_HEALTH + wish + b"\r\n")
        await wire.settle()
        await wire.send(inner)
        await wire.send(_HEALTH + b"Connection: close\r\n\r\n")
        assert [answer.json["status"] for answer in await wire.answers()] == ["ok", "ok"]
    assert await count(api, "refund") == 0


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
        (b"Content-Length: 18\r\n", b'{"amount":"90.0'),
        (b"Content-Length: 18\r\n", b""),
        (b"Content-Length: 1\r\n", b" "),
        (b"Transfer-Encoding: chunked\r\n", b"1\r\n \r\n0\r\n\r\n"),
        (b"Transfer-Encoding: chunked\r\n", b"5\r\n{}"),
    ],
    ids=["empty chunks", "short", "none", "a space", "a space in chunks", "a chunk without end"],
)
async def test_a_body_that_was_announced_and_does_not_come_whole_refunds_nothing(
    api: Api, headers: bytes, body: bytes
) -> None:
    created = await paid(api)
    async with Wire(api.base) as wire:
        await wire.send(refund(api, created, headers) + body)
        wire.half_close()
        answer = await wire.answer()
    assert answer is None or (answer.status, json.loads(answer.body)["code"]) == (
        400,
        "BAD_REQUEST",
    )
    assert await count(api, "refund") == 0


@pytest.mark.parametrize("headers", [b"", b"Content-Length: 0\r\n"], ids=["none", "zero"])
async def test_a_request_that_announced_no_body_refunds_all_that_is_left(
    api: Api, headers: bytes
) -> None:
    created = await paid(api)
    async with Wire(api.base) as wire:
        await wire.send(refund(api, created, headers))
        assert only([await wire.answer()]) == [(201, "1590.00")]


async def test_nothing_is_parsed_behind_a_message_that_was_not_read_to_its_end(api: Api) -> None:
    created = await paid(api)
    behind = refund(api, created, b"Content-Length: 0\r\n")
    too_large = b"Content-Length: 65537\r\nExpect: 100-continue\r\n"
    async with Wire(api.base) as wire:
        await wire.send(refund(api, created, too_large))
        first = await wire.answer()
        assert first is not None
        assert (first.status, first.headers["connection"]) == (413, "close")
        await wire.send(behind)  # the client believes that its body was not wanted
        assert await wire.answers() == []
    for broken in (b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b"Content-Length: x\r\n\r\n"):
        async with Wire(api.base) as wire:
            await wire.send(refund(api, created, broken[:-2]) + behind)
            assert [answer.status for answer in await wire.answers()] == [400]
    assert await count(api, "refund") == 0


async def test_a_request_that_cannot_be_read_leaves_the_answers_before_it_alone(api: Api) -> None:
    created = await paid(api)
    first = refund(api, created, b"Content-Length: %d\r\n" % len(_PART)) + _PART
    async with Wire(api.base) as wire:
        await wire.send(first + b"GARBAGE\r\n\r\n" + _HEALTH + b"\r\n")
        assert [answer.status for answer in await wire.answers()] == [201, 400]


async def test_an_answer_that_closes_the_connection_is_the_last_one(api: Api) -> None:
    created = await paid(api)
    behind = refund(api, created, b"Content-Length: 0\r\n")
    async with Wire(api.base) as wire:
        await wire.send(_HEALTH + b"Connection: close\r\n\r\n" + behind)
        assert [answer.status for answer in await wire.answers()] == [200]
    assert await count(api, "refund") == 0
