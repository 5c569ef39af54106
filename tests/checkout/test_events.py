"""The event stream of a checkout: its receivers, its end and its cleanup."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from payintent.checkout.context import CheckoutContext
from payintent.checkout.events import CHECKOUT_STREAMS_MAX
from payintent.fraud.operations import AddFraudRule
from payintent.http import responses
from payintent.http.middleware import CommonHeaders
from payintent.http.server import make_server
from payintent.runtime.settings import Settings
from tests.support.arrange import DECLINED, bring_to, callback, captured, payment_of, select
from tests.support.patience import PATIENCE_S
from tests.support.serving import app_of
from tests.support.world import Answer, Api, World, free_port

pytestmark = pytest.mark.full

LOOK_S = 0.02


@dataclass
class Running:
    """The API, and access to its state."""

    app: CommonHeaders
    port: int

    @property
    def watching(self) -> int:
        """Count the open streams."""
        here: CheckoutContext = self.app._app.state.checkout  # type: ignore[attr-defined]
        return here.change_feed.count

    async def watched_by(self, count: int) -> None:
        """Wait until this many streams are open."""
        async with asyncio.timeout(PATIENCE_S):
            while self.watching != count:
                await asyncio.sleep(LOOK_S)


@pytest.fixture
async def running(settings: Settings, world: World) -> AsyncIterator[Running]:
    running = Running(app_of(settings, world.service), free_port())
    serving = make_server(running.app, settings, "127.0.0.1", running.port)
    task = asyncio.create_task(serving.serve())
    while not serving.started:
        await asyncio.sleep(LOOK_S)
    yield running
    running.app.on_stop()
    serving.should_exit = True
    await task


@pytest.fixture
async def api(running: Running, world: World) -> AsyncIterator[Api]:
    async with Api(f"http://127.0.0.1:{running.port}", world) as api:
        yield api


@dataclass
class Stream:
    """A client of an event stream."""

    answer: aiohttp.ClientResponse

    async def next(self) -> dict[str, str]:
        """Return the fields of the next event, or a comment under an empty name."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(PATIENCE_S):
            while line := (await self.answer.content.readline()).decode().rstrip("\n"):
                name, _, value = line.partition(": ")
                fields[name] = value
        return fields

    async def told(self, name: str = "status") -> dict[str, Any]:
        """Return the data of the next event, which must be of this kind."""
        fields = await self.next()
        assert fields["event"] == name, fields
        return json.loads(fields["data"])

    async def ends(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            assert await self.answer.content.read() == b""


def _path(created: Answer) -> str:
    return f"/v1/checkout/{created.json['checkout_id']}/events"


@asynccontextmanager
async def listening(api: Api, created: Answer, **headers: str) -> AsyncIterator[Stream]:
    """Open a stream, and read past its initial lines."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with api._client.get(api.base + _path(created), headers=named) as answer:
        assert answer.status == 200
        stream = Stream(answer)
        assert (await stream.next()) == {"retry": "2000"}
        yield stream


async def test_a_stream_sends_the_current_status_every_change_and_then_ends(api: Api) -> None:
    created = await api.create()
    async with listening(api, created) as stream:
        first = await stream.next()
        told = json.loads(first["data"])
        assert (first["event"], first["id"]) == ("status", str(told["version"]))
        assert list(told) == ["status", "version", "server_time", "expires_at"]
        assert (told["status"], told["expires_at"]) == ("PENDING", created.json["expires_at"])
        await select(api, created)
        assert (await stream.told())["status"] == "PROCESSING"
        payment = await payment_of(api, created)
        await callback(api, payment.session_id, captured())
        assert (await stream.told())["status"] == "PAID"
        await stream.ends()


async def test_responses_are_readable_by_every_origin_and_not_cached(api: Api) -> None:
    created = await api.create()
    async with api._client.get(api.base + _path(created)) as answer:
        headers = answer.headers
        assert headers["Content-Type"].partition(";")[0] == "text/event-stream"
        assert headers.getall("Cache-Control") == ["no-store"]
        assert headers["Access-Control-Allow-Origin"] == "*"
        assert headers["X-Accel-Buffering"] == "no"
        assert "Content-Encoding" not in headers
        assert "Access-Control-Allow-Credentials" not in headers
    preflight = await api.send("OPTIONS", _path(created))
    assert "Last-Event-ID" in preflight.headers["Access-Control-Allow-Headers"]


async def test_a_change_reaches_all_streams_of_its_checkout_only(api: Api) -> None:
    one, other = await api.create(), await api.create()
    async with (
        listening(api, one) as first,
        listening(api, one) as second,
        listening(api, other) as stranger,
    ):
        for stream in (first, second, stranger):
            assert (await stream.told())["status"] == "PENDING"
        await bring_to(api, one, "CANCELLED")
        for stream in (first, second):
            assert (await stream.told())["status"] == "CANCELLED"
        await bring_to(api, other, "PROCESSING")
        assert (await stranger.told())["status"] == "PROCESSING"


async def test_a_change_without_a_webhook_event_is_also_streamed(api: Api) -> None:
    created = await api.create()
    async with listening(api, created) as stream:
        await stream.told()
        await api.send("POST", f"/v1/checkout/{created.json['checkout_id']}/cancel")
        assert (await stream.told())["status"] == "CANCELLED"
        await stream.ends()


async def test_a_reconnecting_client_does_not_get_the_same_status_again(api: Api) -> None:
    created = await api.create()
    async with listening(api, created) as stream:
        known = (await stream.next())["id"]
    async with listening(api, created, Last_Event_ID=known) as stream:
        await select(api, created)
        assert (await stream.told())["status"] == "PROCESSING"
    for odd in ("0", "999999999", "9999999999", "-1", "x", "\u00b2", ""):
        async with listening(api, created, Last_Event_ID=odd) as stream:
            assert (await stream.told())["status"] == "PROCESSING", odd


async def test_the_final_status_is_sent_once_and_a_reconnect_gets_204(api: Api) -> None:
    created = await api.create()
    await bring_to(api, created, "FAILED")
    async with listening(api, created) as stream:
        last = await stream.next()
        assert json.loads(last["data"])["status"] == "FAILED"
        await stream.ends()
    again = await api.send("GET", _path(created), headers={"Last-Event-ID": last["id"]})
    assert (again.status, again.body) == (204, b"")


async def test_an_idle_stream_sends_heartbeats_and_ends_at_its_time_limit(
    api: Api, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responses, "HEARTBEAT_S", 0.01)
    created = await api.create()
    async with listening(api, created) as stream:
        await stream.told()
        for _ in range(3):
            assert await stream.next() == {"": "here"}
    monkeypatch.setattr(responses, "STREAM_S", 0.0)
    async with listening(api, created) as stream:
        await stream.told()
        await stream.ends()
    await running.watched_by(0)


async def test_a_checkout_allows_five_concurrent_streams(api: Api, running: Running) -> None:
    created, other = await api.create(), await api.create()
    asked = [api._client.get(api.base + _path(created)) for _ in range(2 * CHECKOUT_STREAMS_MAX)]
    answers = await asyncio.gather(*asked)  # all at once: nobody gets in between
    refused = [entry for entry in answers if entry.status == 429]
    assert len(refused) == CHECKOUT_STREAMS_MAX
    for item in refused:
        assert (await item.json())["code"] == "RATE_LIMITED"
        assert item.headers["Retry-After"] == "5"
    assert running.watching == CHECKOUT_STREAMS_MAX
    async with listening(api, other) as stream:
        await stream.told()
    next(entry for entry in answers if entry.status == 200).close()
    await running.watched_by(CHECKOUT_STREAMS_MAX - 1)
    async with listening(api, created) as stream:
        await stream.told()
    for answer in answers:
        answer.close()
    await running.watched_by(0)


async def test_the_streams_of_disconnected_clients_are_released(api: Api, running: Running) -> None:
    created = await api.create()
    head = f"GET {_path(created)} HTTP/1.1\r\nHost: pay.test\r\n\r\n".encode()
    for _ in range(3 * CHECKOUT_STREAMS_MAX):  # before the first byte, or about then
        _, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(head)
        await writer.drain()
        writer.close()
    async with asyncio.timeout(PATIENCE_S):
        while not await _are_free(api, running, created):
            await asyncio.sleep(LOOK_S)


async def _are_free(api: Api, running: Running, created: Answer) -> bool:
    """Return whether all five streams can be opened, and close them before reading."""
    answers = [
        await api._client.get(api.base + _path(created)) for _ in range(CHECKOUT_STREAMS_MAX)
    ]
    for answer in answers:
        answer.close()
    await running.watched_by(0)
    return all(item.status == 200 for item in answers)


async def test_a_head_request_does_not_open_a_stream(api: Api, running: Running) -> None:
    created = await api.create()
    async with asyncio.timeout(PATIENCE_S):
        answer = await api.send("HEAD", _path(created))
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["Content-Type"].partition(";")[0] == "text/event-stream"
    assert running.watching == 0


async def test_a_process_listens_on_one_connection_and_only_while_streams_are_open(
    api: Api, running: Running
) -> None:
    created, other = await api.create(), await api.create()

    async def listeners(count: int) -> None:
        query = """
            SELECT count(*) AS n
            FROM pg_stat_activity
            WHERE application_name = 'payintent-listen' AND datname = current_database()
            """
        async with asyncio.timeout(PATIENCE_S):
            while (await api.world.rows(query))[0]["n"] != count:
                await asyncio.sleep(LOOK_S)

    for _ in range(2):
        async with listening(api, created), listening(api, created), listening(api, other):
            await listeners(1)
        await running.watched_by(0)
        await listeners(0)
        async with asyncio.timeout(PATIENCE_S):
            while api.world.service.event_notifier._listeners:
                await asyncio.sleep(LOOK_S)  # the server ends a connection before its client does


async def test_an_unknown_checkout_has_no_stream(api: Api) -> None:
    for checkout_id in ("cs_" + "0" * 16, "x", "cs_%00"):
        answer = await api.send("GET", f"/v1/checkout/{checkout_id}/events")
        assert (answer.status, answer.json["code"]) == (404, "CHECKOUT_NOT_FOUND")


async def test_a_buyer_denied_by_screening_gets_the_denial_and_no_stream(
    api: Api, running: Running
) -> None:
    created = await api.create()
    await api.world.perform(AddFraudRule(kind="PAYER", value="buyer-1"))
    answer = await api.send("GET", _path(created))
    assert (answer.status, list(answer.json)) == (200, ["fds"])
    assert running.watching == 0


async def test_streams_end_when_their_process_stops(api: Api, running: Running) -> None:
    created = await api.create()
    async with listening(api, created) as stream:
        await stream.told()
        running.app.on_stop()
        await stream.ends()
        await running.watched_by(0)
    async with listening(api, created) as stream:
        await stream.told()  # who comes now is told, and goes
        await stream.ends()


async def test_a_decline_that_does_not_end_the_payment_sends_no_event(api: Api) -> None:
    created = await api.create()
    await bring_to(api, created, "PROCESSING")
    async with listening(api, created) as stream:
        assert (await stream.told())["status"] == "PROCESSING"
        await api.world.rows("UPDATE session SET declines = declines + 1")
        payment = await payment_of(api, created)
        await callback(api, payment.session_id, DECLINED)
        assert (await stream.told())["status"] == "FAILED"


async def test_sigterm_stops_a_process_immediately_even_if_streams_are_open(world: World) -> None:
    settings = world.service.settings
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(
            Path(sys.executable).with_name("payintent"),
            "api",
            "--processes",
            "1",
            "--port",
            str(port),
        ),
        env={
            "PATH": os.environ["PATH"],
            "DATABASE_URL": settings.database_url,
            "PAYINTENT_PEPPER": settings.pepper.get_secret_value(),
            "PAYINTENT_KEYRING": settings.keyring.get_secret_value(),
            "PAYINTENT_DRAIN_S": "0",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    payment = await world.create()
    async with Api(f"http://127.0.0.1:{port}", world) as api:
        await _serves(api)
        created = Answer(200, json.dumps({"checkout_id": payment.checkout_id}).encode(), {})
        async with listening(api, created) as one, listening(api, created) as other:
            await one.told()
            await other.told()
            process.terminate()
            await one.ends()
            await other.ends()
            written, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode == 0
    assert b"graceful shutdown" not in written  # that is, nothing had to be cut off
    assert payment.checkout_id.encode() not in written


async def _serves(api: Api) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                if (await api.send("GET", "/readyz")).status == 200:
                    return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(LOOK_S)
