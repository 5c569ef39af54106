"""A partial refund never becomes a full one: real clients, hostile framing, and nginx."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from tests.http.test_upgrades import chunked, refund
from tests.http.wire import Wire
from tests.refunds.requests import REFUNDS, kept, paid
from tests.support.proxy import run_proxy
from tests.support.tools import java, tool
from tests.support.world import Answer, Api

pytestmark = pytest.mark.full

_PART = b'{"amount":"1.00"}'
_JAVA = Path(__file__).with_name("java") / "Refunds.java"
_UPGRADE = (
    b"Connection: close, Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n"
)


async def run(*command: str) -> str:
    """Run a program; return its output."""
    running = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    told, errors = await running.communicate()
    assert running.returncode == 0, errors.decode()
    return told.decode()


async def amounts(api: Api) -> list[str]:
    return [f"{item['amount']:.2f}" for item in await kept(api.world)]


async def test_javas_own_client_refunds_a_part_and_no_more(api: Api) -> None:
    created = await paid(api)
    url = api.base + REFUNDS.format(payment_id=created.json["id"])
    bodies = ('{"amount":"90.00"}', '{"amount":"1.00"}')
    printed = await run(java(), str(_JAVA), url, api.world.api_key, *bodies)
    answers = [line.split(" ", 1) for line in printed.splitlines()]
    assert [(status, json.loads(body)["amount"]) for status, body in answers] == [
        *[("201", "90.00")] * 4,
        *[("201", "1.00")] * 4,
    ]
    assert await amounts(api) == ["90.00"] * 4 + ["1.00"] * 4


@pytest.mark.parametrize("options", [[], ["--http2"], ["--http2", "-H", "Expect: 100-continue"],
                                     ["--http2", "-H", "Transfer-Encoding: chunked"]])  # fmt: skip
async def test_curl_refunds_a_part_and_no_more_however_it_asks(
    api: Api, options: list[str]
) -> None:
    created = await paid(api)
    printed = await run(
        tool("curl"), "-s", *options, api.base + REFUNDS.format(payment_id=created.json["id"]),
        "-H", f"Authorization: Bearer {api.world.api_key}", "-H", f"Idempotency-Key: {uuid4()}",
        "-H", "Content-Type: application/json", "-d", '{"amount":"90.00"}',
    )  # fmt: skip
    assert json.loads(printed)["amount"] == "90.00"
    assert await amounts(api) == ["90.00"]


def vectors(api: Api, created: Answer) -> dict[str, bytes]:
    """Refunds of 1.00, each followed by a full refund that only one interpretation finds."""
    all_of_it = refund(api, created, b"Content-Length: 0\r\n")
    part, both = b"%d" % len(_PART), b"%d" % len(_PART + all_of_it)
    te, cl = b"Transfer-Encoding: chunked\r\n", b"Content-Length: "
    ended, hidden = chunked(_PART) + all_of_it, chunked(_PART + all_of_it)
    whole = b"%d" % len(ended)
    said: dict[str, tuple[bytes, bytes]] = {
        "CL.TE": (cl + whole + b"\r\n" + te, ended),
        "TE.CL": (te + cl + b"4\r\n", hidden),
        "two lengths": (cl + part + b"\r\n" + cl + both + b"\r\n", _PART + all_of_it),
        "two lengths, longer first": (cl + both + b"\r\n" + cl + part + b"\r\n", _PART + all_of_it),
        "list of lengths": (cl + part + b", " + both + b"\r\n", _PART + all_of_it),
        "obs-fold": (cl + whole + b"\r\nTransfer-Encoding:\r\n chunked\r\n", ended),
        "obs-fold of a length": (b"Content-Length:\r\n " + both + b"\r\n", _PART + all_of_it),
        "bare LF": (cl + whole + b"\r\nX: a\nTransfer-Encoding: chunked\r\n", ended),
        "bare LF in chunks": (te, ended.replace(b"\r\n", b"\n", 3)),
        "bare CR": (cl + whole + b"\r\nX: a\rTransfer-Encoding: chunked\r\n", ended),
        "space before the colon": (cl + whole + b"\r\nTransfer-Encoding : chunked\r\n", ended),
        "coding nobody knows": (cl + part + b"\r\nTransfer-Encoding: xchunked\r\n", ended),
        "chunked is not last": (
            b"Transfer-Encoding: chunked, identity\r\n" + cl + part + b"\r\n",
            ended,
        ),
        "two codings": (te + b"Transfer-Encoding: identity\r\n" + cl + whole + b"\r\n", ended),
        "vertical tab": (cl + whole + b"\r\nTransfer-Encoding: \x0bchunked\r\n", ended),
        "NUL": (cl + whole + b"\r\nX: a\0\r\n" + te, ended),
        "underscore": (cl + both + b"\r\nContent_Length: " + part + b"\r\n", _PART + all_of_it),
        "length with a sign": (cl + b"+" + both + b"\r\n", _PART + all_of_it),
        "bad chunk size": (te, b"0x11\r\n" + _PART + b"\r\n0\r\n\r\n" + all_of_it),
        "negative chunk size": (te, b"-1\r\n" + _PART + b"\r\n0\r\n\r\n" + all_of_it),
        "upgrade with a body": (_UPGRADE + cl + both + b"\r\n", _PART + all_of_it),
        "upgrade with chunks": (_UPGRADE + te, hidden),
        "pipelined after an error": (cl + b"x\r\n", all_of_it),
    }
    close = b"Connection: close\r\n"
    return {
        name: refund(api, created, (b"" if head.startswith(_UPGRADE) else close) + head) + body
        for name, (head, body) in said.items()
    }


@pytest.fixture(params=["alone", "nginx"])
async def front(
    request: pytest.FixtureRequest, api: Api, tmp_path: Path
) -> AsyncIterator[tuple[str, object]]:
    """The service, alone and behind deploy/nginx.conf."""
    if request.param == "alone":
        yield api.base, None
        return
    port = urlsplit(api.base).port
    assert port is not None
    async with run_proxy(port, folder=tmp_path) as (base, trusting):
        yield base, trusting


async def test_no_framing_makes_a_refund_of_all_out_of_one_of_a_part(
    api: Api, front: tuple[str, object]
) -> None:
    created = await paid(api)
    sent = vectors(api, created)
    told = {}
    for name, data in sent.items():
        async with Wire(*front) as wire:  # type: ignore[arg-type]
            await wire.send(data)
            told[name] = [answer.status for answer in await wire.answers()]
    read = {name for name, statuses in told.items() if statuses not in ([400], [501])}
    assert read <= {"bare LF in chunks"}, (
        told
    )  # nginx ends lines there, and writes them anew for us
    assert set(await amounts(api)) <= {"1.00"}, told
    assert all(len(statuses) <= 1 for statuses in told.values()), told


async def test_an_ordinary_refund_of_a_part_comes_through(
    api: Api, front: tuple[str, object]
) -> None:
    created = await paid(api)
    heads = (b"Content-Length: %d\r\n" % len(_PART), b"Transfer-Encoding: chunked\r\n")
    for headers, body in zip(heads, (_PART, chunked(_PART)), strict=True):
        for wish in (b"", _UPGRADE):
            async with Wire(*front) as wire:  # type: ignore[arg-type]
                await wire.send(refund(api, created, wish + headers))
                await wire.send(body)
                answer = await wire.answer()
                assert answer is not None
                assert (answer.status, answer.json["amount"]) == (201, "1.00")
    assert await amounts(api) == ["1.00"] * 4


async def test_chunks_without_a_byte_are_no_request_without_a_body(
    api: Api, front: tuple[str, object]
) -> None:
    created = await paid(api)
    async with Wire(*front) as wire:  # type: ignore[arg-type]
        await wire.send(refund(api, created, b"Transfer-Encoding: chunked\r\n") + b"0\r\n\r\n")
        answer = await wire.answer()
    assert answer is not None
    assert answer.status == 400
    assert await amounts(api) == []
