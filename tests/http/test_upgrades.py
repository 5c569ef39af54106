"""Requests to upgrade to a different protocol are handled as normal requests."""

import json
from uuid import uuid4

import pytest

from tests.http.wire import Wire, WireAnswer
from tests.refunds.requests import REFUNDS, create_paid, read_stored_refunds
from tests.support.arrange import count
from tests.support.world import Answer, Api

pytestmark = pytest.mark.full

_PART = b'{"amount":"90.00"}'
#: Java's HttpClient and `curl --http2` send the first over plain HTTP; browsers send the second.
_UPGRADES = {
    "h2c": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n",
    "websocket": b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
    "unknown": b"Connection: keep-alive, UPGRADE\r\nUpgrade: tls/1.0, x\r\n",
    "twice": b"Upgrade: h2c\r\nConnection: upgrade\r\nUpgrade: websocket\r\n",
}
_HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"


def refund(api: Api, created: Answer, headers: bytes) -> bytes:
    """Return the head of a `POST …/refunds` request with these additional headers."""
    path = REFUNDS.format(payment_id=created.json["id"])
    return (
        b"POST %b HTTP/1.1\r\nHost: pay.example.com\r\nAuthorization: Bearer %b\r\n"
        b"Idempotency-Key: %b\r\nContent-Type: application/json\r\n%b\r\n"
        % (path.encode(), api.world.api_key.encode(), str(uuid4()).encode(), headers)
    )


def chunked(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


def summarize(answers: list[WireAnswer | None]) -> list[tuple[int, str | None]]:
    return [
        (answer.status, answer.json.get("amount") or answer.json.get("code"))
        for answer in answers
        if answer
    ]


@pytest.mark.parametrize("upgrade", _UPGRADES.values(), ids=_UPGRADES)
@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_a_partial_refund_with_an_upgrade_request_refunds_only_its_amount(
    api: Api, upgrade: bytes, framing: str
) -> None:
    created = await create_paid(api)
    head, body = (
        (refund(api, created, upgrade + b"Content-Length: %d\r\n" % len(_PART)), _PART)
        if framing == "length"
        else (refund(api, created, upgrade + b"Transfer-Encoding: chunked\r\n"), chunked(_PART))
    )
    for pieces in ([head, body], [head + body], [head, body[:5], body[5:]]):
        async with Wire(api.base) as wire:
            for piece in pieces:
                await wire.send(piece)
                await wire.settle()
            first = await wire.answer()
            await wire.send(_HEALTH + b"\r\n")
            assert summarize([first, await wire.answer()]) == [(201, "90.00"), (200, None)]
    [stored_refund] = await read_stored_refunds(api.world)  # the three requests have the same key
    assert stored_refund["amount"] == 90


@pytest.mark.parametrize("upgrade", _UPGRADES.values(), ids=_UPGRADES)
async def test_bytes_after_an_upgrade_request_are_parsed_as_the_next_request(
    api: Api, upgrade: bytes
) -> None:
    request = _HEALTH + upgrade + b"\r\n"
    async with Wire(api.base) as wire:
        await wire.send(request + request + _HEALTH + b"Connection: close\r\n\r\n")
        assert [answer.status for answer in await wire.answers()] == [200, 200, 200]


async def test_the_body_of_an_upgrade_request_is_never_parsed_as_a_request(api: Api) -> None:
    created = await create_paid(api)
    hidden_refund = refund(api, created, b"Content-Length: 0\r\n")
    upgrade = _UPGRADES["h2c"] + b"Content-Length: %d\r\n" % len(hidden_refund)
    async with Wire(api.base) as wire:
        await wire.send(_HEALTH + upgrade + b"\r\n")
        await wire.settle()
        await wire.send(hidden_refund)
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
async def test_a_refund_with_a_truncated_or_blank_body_refunds_nothing(
    api: Api, headers: bytes, body: bytes
) -> None:
    created = await create_paid(api)
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
async def test_a_refund_without_a_body_refunds_the_remaining_amount(
    api: Api, headers: bytes
) -> None:
    created = await create_paid(api)
    async with Wire(api.base) as wire:
        await wire.send(refund(api, created, headers))
        assert summarize([await wire.answer()]) == [(201, "1590.00")]


async def test_nothing_is_parsed_after_a_message_that_was_not_fully_read(api: Api) -> None:
    created = await create_paid(api)
    second_refund = refund(api, created, b"Content-Length: 0\r\n")
    too_large = b"Content-Length: 65537\r\nExpect: 100-continue\r\n"
    async with Wire(api.base) as wire:
        await wire.send(refund(api, created, too_large))
        first = await wire.answer()
        assert first is not None
        assert (first.status, first.headers["connection"]) == (413, "close")
        await wire.send(second_refund)  # the client assumes that the body was refused
        assert await wire.answers() == []
    for broken in (b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b"Content-Length: x\r\n\r\n"):
        async with Wire(api.base) as wire:
            await wire.send(refund(api, created, broken[:-2]) + second_refund)
            assert [answer.status for answer in await wire.answers()] == [400]
    assert await count(api, "refund") == 0


async def test_an_unparsable_request_does_not_affect_earlier_responses(api: Api) -> None:
    created = await create_paid(api)
    first = refund(api, created, b"Content-Length: %d\r\n" % len(_PART)) + _PART
    async with Wire(api.base) as wire:
        await wire.send(first + b"GARBAGE\r\n\r\n" + _HEALTH + b"\r\n")
        assert [answer.status for answer in await wire.answers()] == [201, 400]


async def test_nothing_is_processed_after_a_response_that_closes_the_connection(api: Api) -> None:
    created = await create_paid(api)
    second_refund = refund(api, created, b"Content-Length: 0\r\n")
    async with Wire(api.base) as wire:
        await wire.send(_HEALTH + b"Connection: close\r\n\r\n" + second_refund)
        assert [answer.status for answer in await wire.answers()] == [200]
    assert await count(api, "refund") == 0
