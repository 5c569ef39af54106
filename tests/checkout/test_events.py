"""The event stream of a checkout: delivery, end and cleanup."""

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
from tests.support.ports import free_port
from tests.support.running_service import app_of
from tests.support.timeouts import PATIENCE_S
from tests.support.world import Answer, Api, World

pytestmark = pytest.mark.full

POLL_S = 0.02


@dataclass
class Running:
    """The API server, with access to its state."""

    app: CommonHeaders
    port: int

    @property
    def stream_count(self) -> int:
        context: CheckoutContext = self.app._app.state.checkout  # type: ignore[attr-defined]
        return context.change_feed.count

    async def wait_for_streams(self, count: int) -> None:
        """Wait until this many streams are open."""
        async with asyncio.timeout(PATIENCE_S):
            while self.stream_count != count:
                await asyncio.sleep(POLL_S)


@pytest.fixture
async def running(settings: Settings, world: World) -> AsyncIterator[Running]:
    running = Running(app_of(settings, world.service), free_port())
    serving = make_server(running.app, settings, "127.0.0.1", running.port)
    task = asyncio.create_task(serving.serve())
    while not serving.started:
        await asyncio.sleep(POLL_S)
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

    async def next_data(self, name: str = "status") -> dict[str, Any]:
        """Return the data of the next event. Fail if the event has another name."""
        fields = await self.next()
        assert fields["event"] == name, fields
        return json.loads(fields["data"])

    async def wait_for_end(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            assert await self.answer.content.read() == b""


def _path(created: Answer) -> str:
    return f"/v1/checkout/{created.json['checkout_id']}/events"


@asynccontextmanager
async def open_stream(api: Api, created: Answer, **headers: str) -> AsyncIterator[Stream]:
    """Open a stream, and skip its initial lines."""
    named_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    async with api._client.get(api.base + _path(created), headers=named_headers) as answer:
        assert answer.status == 200
        stream = Stream(answer)
        assert (await stream.next()) == {"retry": "2000"}
        yield stream


async def test_a_stream_sends_the_current_status_every_change_and_then_ends(api: Api) -> None:
    created = await api.create()
    async with open_stream(api, created) as stream:
        first = await stream.next()
        data = json.loads(first["data"])
        assert (first["event"], first["id"]) == ("status", str(data["version"]))
        assert list(data) == ["status", "version", "server_time", "expires_at"]
        assert (data["status"], data["expires_at"]) == ("PENDING", created.json["expires_at"])
        await select(api, created)
        assert (await stream.next_data())["status"] == "PROCESSING"
        payment = await payment_of(api, created)
        await callback(api, payment.session_id, captured())
        assert (await stream.next_data())["status"] == "PAID"
        await stream.wait_for_end()


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


async def test_a_change_reaches_all_streams_of_its_checkout_and_no_others(api: Api) -> None:
    changed, unchanged = await api.create(), await api.create()
    async with (
        open_stream(api, changed) as first,
        open_stream(api, changed) as second,
        open_stream(api, unchanged) as unrelated,
    ):
        for stream in (first, second, unrelated):
            assert (await stream.next_data())["status"] == "PENDING"
        await bring_to(api, changed, "CANCELLED")
        for stream in (first, second):
            assert (await stream.next_data())["status"] == "CANCELLED"
        await bring_to(api, unchanged, "PROCESSING")
        assert (await unrelated.next_data())["status"] == "PROCESSING"


async def test_a_change_without_a_webhook_event_is_also_streamed(api: Api) -> None:
    created = await api.create()
    async with open_stream(api, created) as stream:
        await stream.next_data()
        await api.send("POST", f"/v1/checkout/{created.json['checkout_id']}/cancel")
        assert (await stream.next_data())["status"] == "CANCELLED"
        await stream.wait_for_end()


async def test_a_reconnecting_client_does_not_get_the_same_status_again(api: Api) -> None:
    created = await api.create()
    async with open_stream(api, created) as stream:
        last_event_id = (await stream.next())["id"]
    async with open_stream(api, created, Last_Event_ID=last_event_id) as stream:
        await select(api, created)
        assert (await stream.next_data())["status"] == "PROCESSING"
    for odd in ("0", "999999999", "9999999999", "-1", "x", "\u00b2", ""):
        async with open_stream(api, created, Last_Event_ID=odd) as stream:
            assert (await stream.next_data())["status"] == "PROCESSING", odd


async def test_the_final_status_is_sent_once_and_a_reconnect_gets_204(api: Api) -> None:
    created = await api.create()
    await bring_to(api, created, "FAILED")
    async with open_stream(api, created) as stream:
        last = await stream.next()
        assert json.loads(last["data"])["status"] == "FAILED"
        await stream.wait_for_end()
    again = await api.send("GET", _path(created), headers={"Last-Event-ID": last["id"]})
    assert (again.status, again.body) == (204, b"")


async def test_an_idle_stream_sends_heartbeats_and_ends_at_its_time_limit(
    api: Api, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responses, "HEARTBEAT_S", 0.01)
    created = await api.create()
    async with open_stream(api, created) as stream:
        await stream.next_data()
        for _ in range(3):
            assert await stream.next() == {"": "here"}
    monkeypatch.setattr(responses, "STREAM_S", 0.0)
    async with open_stream(api, created) as stream:
        await stream.next_data()
        await stream.wait_for_end()
    await running.wait_for_streams(0)


async def test_a_checkout_allows_five_concurrent_streams(api: Api, running: Running) -> None:
    created, second = await api.create(), await api.create()
    requests = [api._client.get(api.base + _path(created)) for _ in range(2 * CHECKOUT_STREAMS_MAX)]
    answers = await asyncio.gather(*requests)  # concurrent, so that no stream closes in between
    refused = [entry for entry in answers if entry.status == 429]
    assert len(refused) == CHECKOUT_STREAMS_MAX
    for item in refused:
        assert (await item.json())["code"] == "RATE_LIMITED"
        assert item.headers["Retry-After"] == "5"
    assert running.stream_count == CHECKOUT_STREAMS_MAX
    async with open_stream(api, second) as stream:
        await stream.next_data()
    next(entry for entry in answers if entry.status == 200).close()
    await running.wait_for_streams(CHECKOUT_STREAMS_MAX - 1)
    async with open_stream(api, created) as stream:
        await stream.next_data()
    for answer in answers:
        answer.close()
    await running.wait_for_streams(0)


async def test_the_streams_of_disconnected_clients_are_released(api: Api, running: Running) -> None:
    created = await api.create()
    head = f"GET {_path(created)} HTTP/1.1\r\nHost: pay.test\r\n\r\n".encode()
    for _ in range(3 * CHECKOUT_STREAMS_MAX):  # disconnect before or when the first byte is sent
        _, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(head)
        await writer.drain()
        writer.close()
    async with asyncio.timeout(PATIENCE_S):
        while not await _can_open_all_streams(api, running, created):
            await asyncio.sleep(POLL_S)


async def _can_open_all_streams(api: Api, running: Running, created: Answer) -> bool:
    """Return whether all five streams can be opened. They are closed without reading."""
    answers = [
        await api._client.get(api.base + _path(created)) for _ in range(CHECKOUT_STREAMS_MAX)
    ]
    for answer in answers:
        answer.close()
    await running.wait_for_streams(0)
    return all(item.status == 200 for item in answers)


async def test_a_head_request_does_not_open_a_stream(api: Api, running: Running) -> None:
    created = await api.create()
    async with asyncio.timeout(PATIENCE_S):
        answer = await api.send("HEAD", _path(created))
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["Content-Type"].partition(";")[0] == "text/event-stream"
    assert running.stream_count == 0


async def test_a_process_listens_on_one_connection_and_only_while_streams_are_open(
    api: Api, running: Running
) -> None:
    created, second = await api.create(), await api.create()

    async def listeners(count: int) -> None:
        query = """
            SELECT count(*) AS n
            FROM pg_stat_activity
            WHERE application_name = 'payintent-listen' AND datname = current_database()
            """
        async with asyncio.timeout(PATIENCE_S):
            while (await api.world.rows(query))[0]["n"] != count:
                await asyncio.sleep(POLL_S)

    for _ in range(2):
        async with open_stream(api, created), open_stream(api, created), open_stream(api, second):
            await listeners(1)
        await running.wait_for_streams(0)
        await listeners(0)
        async with asyncio.timeout(PATIENCE_S):
            while api.world.service.event_notifier._listeners:
                await asyncio.sleep(POLL_S)  # the server closes a connection before its client does


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
    assert running.stream_count == 0


async def test_streams_end_when_their_process_stops(api: Api, running: Running) -> None:
    created = await api.create()
    async with open_stream(api, created) as stream:
        await stream.next_data()
        running.app.on_stop()
        await stream.wait_for_end()
        await running.wait_for_streams(0)
    async with open_stream(api, created) as stream:
        await stream.next_data()  # a new client still gets the current status
        await stream.wait_for_end()


async def test_a_decline_that_does_not_end_the_payment_sends_no_event(api: Api) -> None:
    created = await api.create()
    await bring_to(api, created, "PROCESSING")
    async with open_stream(api, created) as stream:
        assert (await stream.next_data())["status"] == "PROCESSING"
        await api.world.rows("UPDATE session SET declines = declines + 1")
        payment = await payment_of(api, created)
        await callback(api, payment.session_id, DECLINED)
        assert (await stream.next_data())["status"] == "FAILED"


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
        await _wait_until_ready(api)
        created = Answer(200, json.dumps({"checkout_id": payment.checkout_id}).encode(), {})
        async with open_stream(api, created) as first, open_stream(api, created) as second:
            await first.next_data()
            await second.next_data()
            process.terminate()
            await first.wait_for_end()
            await second.wait_for_end()
            output, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode == 0
    assert b"graceful shutdown" not in output  # no connection was cut off
    assert payment.checkout_id.encode() not in output


async def _wait_until_ready(api: Api) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                if (await api.send("GET", "/readyz")).status == 200:
                    return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(POLL_S)
