"""Backup and restore with the commands in docs/operate/backup.md."""

import base64
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import aiohttp
import pytest
from pydantic import SecretStr

from payintent.callbacks.receive import CallbackResult
from payintent.core import ids
from payintent.gateways.port import VerifiedCallback
from payintent.payments import sessions_store as session_store
from payintent.payments.model import Payment, PaymentStatus
from payintent.runtime.settings import Settings
from payintent.service import open_service
from tests.e2e import drill
from tests.e2e.merchant import Receiver
from tests.payments.test_expire import ask_all
from tests.support import processes
from tests.support.fakes import FakeGateway, captured, declined
from tests.support.installed import add_simulator_method
from tests.support.patience import wait_until
from tests.support.world import Api, World, free_port, make_world

pytestmark = [pytest.mark.e2e, pytest.mark.full]

TOTAL = 159_000  # 1590.00 THB
OTHER_KEY = base64.b64encode(b"another 32 bytes than the first.").decode()


@pytest.fixture
def restored(settings: Settings) -> Iterator[Settings]:
    """The settings of a service on the restored database, which is removed afterwards."""
    _, url = drill.beside(settings.database_url)
    yield settings.model_copy(update={"database_url": url})
    drill.drop(url)


@pytest.fixture
async def receiver(world: World) -> AsyncIterator[Receiver]:
    """The merchant's server, which accepts every event."""
    listening = Receiver()
    listening.secret = world.callback_secret
    await listening.start()
    await world.rows("UPDATE merchant SET callback_url = $1, allow_http = true", listening.url)
    yield listening
    await listening.stop()


def restore(settings: Settings, restored: Settings, folder: Path) -> None:
    name, _ = drill.beside(settings.database_url)
    drill.run("restore", folder, settings.database_url, RESTORED=name)
    drill.run("check", folder, restored.database_url, **drill.variables_of(restored))


async def dump_at_rest(
    settings: Settings, tmp_path: Path
) -> tuple[Path, dict[str, tuple[int, str]]]:
    """Dump a database that does not change during the dump; return the folder and the rows.

    The API writes calls and key uses asynchronously, up to ten seconds after the requests.
    """
    while True:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        rows = await drill.contents(settings.database_url)
        drill.run("dump", folder, settings.database_url)
        if await drill.contents(settings.database_url) == rows:
            return folder, rows


async def paid(world: World) -> Payment:
    payment = await world.create()
    selected = await world.select(payment)
    capture = captured(TOTAL, reference=f"cap-{payment.id}")
    return await world.report(payment, selected.session.id, capture)


async def in_every_state(api: Api) -> list[Payment]:
    """Create a payment in each status, and unassigned money."""
    world = api.world
    ends = await world.create(expires_in_s=1)
    made = [ends, await world.create(), await world.create(), await world.create()]
    _, _, processing, failing = made
    await world.select(processing)
    session = (await world.select(failing)).session
    await world.report(failing, session.id, declined())
    cancelled = await world.create(metadata='{"b":1.0,"a":"\\u00e9","b":10000000000000000000}')
    path = f"/v1/payments/{name_of(cancelled)}/cancel"
    assert (await api.send("POST", path, headers=api.bearer())).status == 200
    once, partly, wholly = [await paid(world) for _ in range(3)]
    for payment, status, refunded in (
        (partly, "PARTIALLY_REFUNDED", "10"),
        (wholly, "REFUNDED", "1590"),
    ):
        await world.rows(
            "UPDATE payment SET status = $2, refunded_amount = $3::text::numeric WHERE id = $1",
            *(payment.id, status, refunded),
        )
    await world.report(once, once.session_id, captured(TOTAL, reference="twice"))
    assert await world.cases(once) == ["DOUBLE_PAYMENT"]

    async def expired() -> bool:
        return (await api.get(name_of(ends))).json["status"] == "EXPIRED"

    await wait_until(expired, "the payment that lives a second is EXPIRED")
    return [*made, cancelled, once, partly, wholly]


def name_of(payment: Payment) -> str:
    return ids.format_id(ids.PAYMENT, payment.id)


@contextmanager
def process(settings: Settings, folder: Path, *words: str) -> Iterator[None]:
    """Run a process of the service while the block runs."""
    log = folder / f"{words[0]}.log"
    with log.open("wb") as output:
        running = processes.start(
            *("payintent", *words, "--processes", "1"),
            env=os.environ | drill.variables_of(settings),
            output=output,
        )
    try:
        yield
    finally:
        running.terminate()
        status = running.wait(drill.PATIENCE_S)
    assert status == 0, log.read_text()


@asynccontextmanager
async def served(settings: Settings, world: World, folder: Path) -> AsyncIterator[Api]:
    """Serve the API in a separate process."""
    await add_simulator_method(settings, world.merchant_id)  # the fake gateway lives in the test
    port = free_port()
    with process(settings, folder, "api", "--port", str(port)):
        async with Api(f"http://127.0.0.1:{port}", world) as api:

            async def ready() -> bool:
                try:
                    return (await api.send("GET", "/readyz")).status == 200
                except aiohttp.ClientError:
                    return False

            await wait_until(ready, "the restored service is ready", drill.PATIENCE_S)
            yield api


async def test_a_restored_database_holds_every_payment_and_goes_on_with_its_work(
    api: Api, receiver: Receiver, settings: Settings, restored: Settings, tmp_path: Path
) -> None:
    world = api.world
    payments = await in_every_state(api)
    names = [name_of(payment) for payment in payments]
    before = [await api.get(name) for name in names]
    assert {item.json["status"] for item in before} == {status.value for status in PaymentStatus}
    waiting = {row["event_id"] for row in await world.rows("SELECT event_id FROM delivery")}
    folder, kept = await dump_at_rest(settings, tmp_path)
    assert kept["delivery"][0] == len(waiting) == 6
    assert receiver.deliveries == []

    restore(settings, restored, folder)
    assert await drill.contents(restored.database_url) == kept
    async with served(restored, world, tmp_path) as again:
        after = [await again.get(name) for name in names]
        assert [(item.status, item.body) for item in after] == [(200, item.body) for item in before]
        created = await again.create()
        assert created.status == 201
        assert created.json["id"] > max(names)
    with process(restored, tmp_path, "worker"):
        await wait_until(lambda: len(receiver.deliveries) >= len(waiting), "the events", 60)
    assert {UUID(delivery.webhook_id) for delivery in receiver.deliveries} == waiting
    assert receiver.refused == []


async def test_a_restored_database_numbers_on_and_opens_what_was_sealed(
    world: World, settings: Settings, restored: Settings, gateway: FakeGateway, tmp_path: Path
) -> None:
    drill.run("dump", tmp_path, settings.database_url)
    restore(settings, restored, tmp_path)
    service = await open_service(restored, {"fake": gateway})
    try:
        account = await service.accounts.get(world.account_id)
        assert account is not None
        assert account.credentials == {"signing_secret": world.signing_secret}
        other = await make_world(service, gateway)
    finally:
        await service.close()
    assert other.merchant_id == world.merchant_id + 1
    assert other.account_id == world.account_id + 1
    assert (other.card, other.transfer) == (world.transfer + 1, world.transfer + 2)


async def test_a_process_with_other_secrets_refuses_a_restored_database(
    world: World, settings: Settings, restored: Settings, tmp_path: Path
) -> None:
    drill.run("dump", tmp_path, settings.database_url)
    restore(settings, restored, tmp_path)
    for wrong in ({"keyring": f"test:{OTHER_KEY}"}, {"pepper": OTHER_KEY}):
        changed = {name: SecretStr(value) for name, value in wrong.items()}
        done = drill.command(restored.model_copy(update=changed), "doctor")
        assert done.returncode == 1, done.stdout
        assert "FAIL" in done.stdout


async def test_after_a_restore_gateways_tell_what_they_know_and_the_rest_is_kept(
    api: Api, settings: Settings, restored: Settings, gateway: FakeGateway, tmp_path: Path
) -> None:
    """The table in "After a restore": the data that is recovered automatically, and the rest."""
    world = api.world
    known = await world.create()
    session = (await world.select(known)).session
    waiting = await world.create()
    drill.run("dump", tmp_path, settings.database_url)

    await world.report(known, session.id, captured(TOTAL, reference="cap-known"))
    lost_session = (await world.select(waiting)).session
    key = str(uuid4())
    lost = (await api.create(key)).json["id"]

    restore(settings, restored, tmp_path)
    service = await open_service(restored, {"fake": gateway})
    back = replace(world, service=service)
    try:
        await _asked_about_a_session_it_knows(back, known, session.id)
        await _told_of_a_session_it_lost(back, waiting, lost_session.id)
    finally:
        await service.close()
    async with served(restored, world, tmp_path) as again:
        assert (await again.get(lost)).status == 404
        second = await again.create(key)
        assert (second.status, second.json["id"] == lost) == (201, False)


async def _asked_about_a_session_it_knows(back: World, known: Payment, session_id: UUID) -> None:
    assert await back.status(known) == "PROCESSING"
    back.gateway.answer_inquire = captured(TOTAL, reference="cap-known")
    await session_store.request_inquiry(back.service.database, session_id)
    assert await ask_all(back) == 1
    assert await back.status(known) == "PAID"
    assert await back.events(known) == ["payment.completed"]


async def _told_of_a_session_it_lost(back: World, waiting: Payment, session_id: UUID) -> None:
    """The callback is accepted and stored, but the money belongs to no payment."""
    told = VerifiedCallback(id="late", session_id=session_id, report=captured(TOTAL))
    service = back.service
    receipt = await service.callback_receiver.receive(back.account_id, told, b"{}")
    assert receipt == CallbackResult(is_new=True, payment_id=None)
    [row] = await back.rows("SELECT applied_at FROM callback WHERE callback_id = 'late'")
    assert row["applied_at"] is None
    assert await back.status(waiting) == "PENDING"
    assert await back.rows("SELECT 1 FROM capture WHERE payment_id = $1", waiting.id) == []
