"""`payintent api` and `worker` with several real processes under a real supervisor."""

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from uuid import uuid4

import aiohttp
import asyncpg
import pytest

from payintent.runtime.settings import Settings
from tests.support.databases import WORLD_TEMPLATE, Databases
from tests.support.filled_database import WORLD_ENV
from tests.support.installed_methods import add_simulator_method
from tests.support.supervised_processes import Supervised, supervised
from tests.support.timeouts import PATIENCE_S, wait_until

pytestmark = pytest.mark.full

_MORE = {
    "PAYINTENT_DRAIN_S": "1",
    "PAYINTENT_DATABASE_LOCK_TIMEOUT_MS": "90000",
    "PAYINTENT_DATABASE_STATEMENT_TIMEOUT_MS": "90000",
}
_CONNECTIONS_MAX = 50  # until each of the two processes has a connection
_FAILURES = ("payintent_authentication_failures_total", '{holder="merchant",reason="missing"}')


@pytest.fixture(scope="module")
def stored(databases: Databases, any_settings: Settings) -> Iterator[Settings]:
    """Settings with a database and a merchant, for all tests in this file."""
    url = databases.take(WORLD_TEMPLATE)
    settings = any_settings.model_copy(update={"database_url": url})
    asyncio.run(add_simulator_method(settings, json.loads(os.environ[WORLD_ENV])["merchant_id"]))
    yield settings
    databases.give_back(url)


@pytest.fixture(scope="module")
def api(stored: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    folder = tmp_path_factory.mktemp("api")
    with supervised(stored, folder, "api", _MORE) as running:
        yield running


def _request(key: str | None = None) -> bytes:
    """Return the bytes of a creation request, by default with the merchant's key."""
    body = json.dumps({"currency": "THB", "amount": "1590.00", "payer_uid": "buyer-1"}).encode()
    lines = ["POST /v1/payments HTTP/1.1", "Host: pay.test", "Content-Type: application/json"]
    lines += [f"Content-Length: {len(body)}", f"Idempotency-Key: {uuid4()}"]
    lines += [f"Authorization: Bearer {key}"] if key else []
    return "\r\n".join([*lines, "", ""]).encode() + body


def _key() -> str:
    return json.loads(os.environ[WORLD_ENV])["api_key"]


def _status(client: socket.socket) -> int:
    """Read a response; return 0 if the connection ended without one."""
    try:
        read = client.recv(65_536)
    except ConnectionResetError:
        return 0
    return int(read.split()[1]) if read else 0


def _connections_to_each(api: Supervised) -> dict[int, socket.socket]:
    """Connect until each process has a connection; return a connection of each."""
    connections: dict[int, socket.socket] = {}
    for _ in range(_CONNECTIONS_MAX):
        client = socket.create_connection(("127.0.0.1", api.port), PATIENCE_S)
        deadline = time.monotonic() + PATIENCE_S
        while not (pid := api.server_of(client)):
            assert time.monotonic() < deadline, "no process accepts the connection"
            time.sleep(0.01)
        if pid in connections:
            client.close()
        connections.setdefault(pid, client)
        if len(connections) == 2:
            return connections
    raise AssertionError("one process takes all connections")


@asynccontextmanager
async def _payments_held_up(settings: Settings) -> AsyncIterator[None]:
    """Block every creation request while the block runs."""
    holder = await asyncpg.connect(settings.database_url)
    async with holder.transaction():
        await holder.execute("LOCK TABLE payment IN ACCESS EXCLUSIVE MODE")
        yield
    await holder.close()


async def _until_waiting(settings: Settings, count: int) -> None:
    """Wait until this many statements wait for the lock on the payments."""
    watcher = await asyncpg.connect(settings.database_url)

    async def waiting() -> bool:
        return count <= await watcher.fetchval(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND database ="
            " (SELECT oid FROM pg_database WHERE datname = current_database())"
        )

    await wait_until(waiting, "the creation requests wait")
    await watcher.close()


async def test_a_killed_process_is_replaced_and_the_rest_finish_their_requests(
    api: Supervised, stored: Settings
) -> None:
    before = api.wait_for(2)
    ends, logged = api.metric("payintent_process_ends_total"), len(api.events("process_ended"))
    connections = _connections_to_each(api)
    killed, surviving = connections
    async with _payments_held_up(stored):
        for client in connections.values():
            client.sendall(_request(_key()))
        await _until_waiting(stored, 2)
        os.kill(killed, signal.SIGKILL)
        assert await asyncio.to_thread(_status, connections[killed]) == 0
    assert await asyncio.to_thread(_status, connections[surviving]) == 201
    for client in connections.values():
        client.close()
    last = await asyncio.to_thread(api.wait_for_event, "process_ended", logged + 1)
    after = await asyncio.to_thread(api.wait_for, 2)
    assert after & before == {surviving}
    assert api.metric("payintent_process_ends_total") == ends + 1
    assert (last["pid"], last["status"]) == (killed, -signal.SIGKILL)


def _latest_start(api: Supervised) -> float:
    """Return the start time of the youngest process, from the metrics of all slots."""
    places = range(1, 2 * 2 + 3)
    name = "process_start_time_seconds"
    return max(api.metric(name, f'{{process="{place}"}}') for place in places)


def test_the_supervisor_serves_the_metrics_of_running_and_ended_processes(
    api: Supervised,
) -> None:
    api.wait_for(2)
    before = max(0.0, api.metric(*_FAILURES))
    connections = _connections_to_each(api)
    for client in connections.values():
        with closing(client):
            client.sendall(_request())
            assert _status(client) == 401
    _until(lambda: api.metric(*_FAILURES) == before + 2, "both requests are counted")
    latest = _latest_start(api)
    os.kill(next(iter(connections)), signal.SIGKILL)
    # After a rolling restart, the next process may use a different slot from the killed process.
    _until(lambda: _latest_start(api) > latest, "the next process has metrics")
    assert api.metric(*_FAILURES) == before + 2, "a sum never falls"
    assert len(api.wait_for(2)) == 2


async def test_a_rolling_restart_runs_the_installed_program_and_no_requests_fail(
    api: Supervised,
) -> None:
    before = api.wait_for(2)
    rolls = len(api.events("roll_done"))
    api.install("a newer one")
    event = asyncio.Event()
    base = f"http://127.0.0.1:{api.port}"

    async def create_again_and_again(*, keep: bool) -> list[int]:
        """Create payments until the restart ends, on one connection or on new connections."""
        statuses: list[int] = []
        connector = aiohttp.TCPConnector(force_close=not keep)
        async with aiohttp.ClientSession(base, connector=connector) as client:
            while not event.is_set():
                headers = {"Authorization": f"Bearer {_key()}", "Idempotency-Key": str(uuid4())}
                body = {"currency": "THB", "amount": "1590.00", "payer_uid": "buyer-1"}
                async with client.post("/v1/payments", json=body, headers=headers) as answer:
                    statuses.append(answer.status)
                async with client.get("/readyz") as answer:
                    statuses.append(answer.status)
                await asyncio.sleep(0)
        return statuses

    clients = [asyncio.create_task(create_again_and_again(keep=n < 2)) for n in range(4)]
    api.signal(signal.SIGHUP)
    try:
        await asyncio.to_thread(api.wait_for_event, "roll_done", rolls + 1)
    finally:
        event.set()
    answered = await asyncio.gather(*clients)
    assert {status for statuses in answered for status in statuses} == {200, 201}
    after = await asyncio.to_thread(api.wait_for, 2)
    assert after & before == set()
    assert api.running.poll() is None, "the supervisor is the same process"
    assert api.events("starting")[-1]["version"] == "a newer one"


def test_a_program_that_cannot_start_does_not_replace_the_running_processes(
    api: Supervised,
) -> None:
    before = api.wait_for(2)
    failed = len(api.events("roll_failed"))
    api.install("")
    api.signal(signal.SIGHUP)
    api.wait_for_event("roll_failed", failed + 1)
    assert api.wait_for(2) == before
    api.install("a newer one")


async def test_requests_in_flight_are_completed_after_sigterm(
    stored: Settings, tmp_path: Path
) -> None:
    with supervised(stored, tmp_path, "api", _MORE) as api:
        connections = _connections_to_each(api)
        async with _payments_held_up(stored):
            for client in connections.values():
                client.sendall(_request(_key()))
            await _until_waiting(stored, 2)
            api.signal(signal.SIGTERM)
            refused = await asyncio.to_thread(
                _until, lambda: _refuses(api.port), "the port refuses connections"
            )
            assert refused
        answers = [await asyncio.to_thread(_status, client) for client in connections.values()]
        for client in connections.values():
            client.close()
        assert answers == [201, 201]
        assert await asyncio.to_thread(api.running.wait, PATIENCE_S) == 0
        assert api.pids() == set()


async def test_the_supervisor_ends_if_no_process_can_be_started(
    stored: Settings, tmp_path: Path
) -> None:
    owner = await asyncpg.connect(stored.database_url)
    with supervised(stored, tmp_path, "api", _MORE) as api:
        processes = api.wait_for(2)
        await owner.execute("UPDATE installation SET pepper_mark = reverse(pepper_mark)")
        try:
            for pid in processes:
                os.kill(pid, signal.SIGKILL)
            assert await asyncio.to_thread(api.running.wait, PATIENCE_S) == 1
        finally:
            await owner.execute("UPDATE installation SET pepper_mark = reverse(pepper_mark)")
            await owner.close()
        assert _refuses(api.port), "connections are refused immediately"
        assert len(api.events("process_ended")) <= 3


def test_processes_stop_if_their_supervisor_is_killed(stored: Settings, tmp_path: Path) -> None:
    with supervised(stored, tmp_path, "worker", {}) as worker:
        processes = worker.wait_for(2)
        worker.signal(signal.SIGKILL)
        worker.running.wait(PATIENCE_S)
        _until(lambda: not any(map(_lives, processes)), "the processes have ended")
        assert len(worker.events("supervisor_gone")) == 2


def _refuses(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 0.2):
            return False
    except TimeoutError:
        return False
    except ConnectionRefusedError:
        return True


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"  # a zombie, if no process reaps orphans


def _until(holds: object, message: str) -> bool:
    assert callable(holds)
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"not in time: {message}"
        time.sleep(0.03)
    return True
