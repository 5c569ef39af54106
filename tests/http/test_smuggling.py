"""A partial refund never becomes a full refund, even with hostile framing or behind nginx."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from tests.http.test_upgrades import chunked, refund
from tests.http.wire import Wire
from tests.refunds.requests import REFUNDS, create_paid, read_stored_refunds
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
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return output.decode()


async def amounts(api: Api) -> list[str]:
    return [f"{item['amount']:.2f}" for item in await read_stored_refunds(api.world)]


async def test_the_java_http_client_refunds_only_the_requested_amount(api: Api) -> None:
    created = await create_paid(api)
    url = api.base + REFUNDS.format(payment_id=created.json["id"])
    bodies = ('{"amount":"90.00"}', '{"amount":"1.00"}')
    output = await run(java(), str(_JAVA), url, api.world.api_key, *bodies)
    answers = [line.split(" ", 1) for line in output.splitlines()]
    assert [(status, json.loads(body)["amount"]) for status, body in answers] == [
        *[("201", "90.00")] * 4,
        *[("201", "1.00")] * 4,
    ]
    assert await amounts(api) == ["90.00"] * 4 + ["1.00"] * 4


@pytest.mark.parametrize("options", [[], ["--http2"], ["--http2", "-H", "Expect: 100-continue"],
                                     ["--http2", "-H", "Transfer-Encoding: chunked"]])  # fmt: skip
async def test_curl_refunds_only_the_requested_amount_with_any_options(
    api: Api, options: list[str]
) -> None:
    created = await create_paid(api)
    output = await run(
        tool("curl"), "-s", *options, api.base + REFUNDS.format(payment_id=created.json["id"]),
        "-H", f"Authorization: Bearer {api.world.api_key}", "-H", f"Idempotency-Key: {uuid4()}",
        "-H", "Content-Type: application/json", "-d", '{"amount":"90.00"}',
    )  # fmt: skip
    assert json.loads(output)["amount"] == "90.00"
    assert await amounts(api) == ["90.00"]


def vectors(api: Api, created: Answer) -> dict[str, bytes]:
    """Refunds of 1.00, each followed by a full refund that only one interpretation sees."""
    full = refund(api, created, b"Content-Length: 0\r\n")
    short, long = b"%d" % len(_PART), b"%d" % len(_PART + full)
    te, cl = b"Transfer-Encoding: chunked\r\n", b"Content-Length: "
    trailing, nested = chunked(_PART) + full, chunked(_PART + full)
    length = b"%d" % len(trailing)
    messages: dict[str, tuple[bytes, bytes]] = {
        "CL.TE": (cl + length + b"\r\n" + te, trailing),
        "TE.CL": (te + cl + b"4\r\n", nested),
        "two lengths": (cl + short + b"\r\n" + cl + long + b"\r\n", _PART + full),
        "two lengths, longer first": (cl + long + b"\r\n" + cl + short + b"\r\n", _PART + full),
        "list of lengths": (cl + short + b", " + long + b"\r\n", _PART + full),
        "obs-fold": (cl + length + b"\r\nTransfer-Encoding:\r\n chunked\r\n", trailing),
        "length with obs-fold": (b"Content-Length:\r\n " + long + b"\r\n", _PART + full),
        "bare LF": (cl + length + b"\r\nX: a\nTransfer-Encoding: chunked\r\n", trailing),
        "bare LF in chunks": (te, trailing.replace(b"\r\n", b"\n", 3)),
        "bare CR": (cl + length + b"\r\nX: a\rTransfer-Encoding: chunked\r\n", trailing),
        "space before the colon": (cl + length + b"\r\nTransfer-Encoding : chunked\r\n", trailing),
        "unknown coding": (cl + short + b"\r\nTransfer-Encoding: xchunked\r\n", trailing),
        "chunked is not last": (
            b"Transfer-Encoding: chunked, identity\r\n" + cl + short + b"\r\n",
            trailing,
        ),
        "two codings": (te + b"Transfer-Encoding: identity\r\n" + cl + length + b"\r\n", trailing),
        "vertical tab": (cl + length + b"\r\nTransfer-Encoding: \x0bchunked\r\n", trailing),
        "NUL": (cl + length + b"\r\nX: a\0\r\n" + te, trailing),
        "underscore": (cl + long + b"\r\nContent_Length: " + short + b"\r\n", _PART + full),
        "length with a sign": (cl + b"+" + long + b"\r\n", _PART + full),
        "bad chunk size": (te, b"0x11\r\n" + _PART + b"\r\n0\r\n\r\n" + full),
        "negative chunk size": (te, b"-1\r\n" + _PART + b"\r\n0\r\n\r\n" + full),
        "upgrade with a body": (_UPGRADE + cl + long + b"\r\n", _PART + full),
        "upgrade with chunks": (_UPGRADE + te, nested),
        "pipelined after an error": (cl + b"x\r\n", full),
    }
    close = b"Connection: close\r\n"
    return {
        name: refund(api, created, (b"" if head.startswith(_UPGRADE) else close) + head) + body
        for name, (head, body) in messages.items()
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


async def test_no_framing_turns_a_partial_refund_into_a_full_refund(
    api: Api, front: tuple[str, object]
) -> None:
    created = await create_paid(api)
    messages = vectors(api, created)
    responses = {}
    for name, data in messages.items():
        async with Wire(*front) as wire:  # type: ignore[arg-type]
            await wire.send(data)
            responses[name] = [answer.status for answer in await wire.answers()]
    accepted = {name for name, statuses in responses.items() if statuses not in ([400], [501])}
    # nginx accepts bare line feeds in chunks, and rewrites them.
    assert accepted <= {"bare LF in chunks"}, responses
    assert set(await amounts(api)) <= {"1.00"}, responses
    assert all(len(statuses) <= 1 for statuses in responses.values()), responses


async def test_a_well_formed_partial_refund_succeeds(api: Api, front: tuple[str, object]) -> None:
    created = await create_paid(api)
    heads = (b"Content-Length: %d\r\n" % len(_PART), b"Transfer-Encoding: chunked\r\n")
    for headers, body in zip(heads, (_PART, chunked(_PART)), strict=True):
        for upgrade in (b"", _UPGRADE):
            async with Wire(*front) as wire:  # type: ignore[arg-type]
                await wire.send(refund(api, created, upgrade + headers))
                await wire.send(body)
                answer = await wire.answer()
                assert answer is not None
                assert (answer.status, answer.json["amount"]) == (201, "1.00")
    assert await amounts(api) == ["1.00"] * 4


async def test_an_empty_chunked_body_is_refused(api: Api, front: tuple[str, object]) -> None:
    created = await create_paid(api)
    async with Wire(*front) as wire:  # type: ignore[arg-type]
        await wire.send(refund(api, created, b"Transfer-Encoding: chunked\r\n") + b"0\r\n\r\n")
        answer = await wire.answer()
    assert answer is not None
    assert answer.status == 400
    assert await amounts(api) == []
