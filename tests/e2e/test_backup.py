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
from tests.payments.test_expire import inquire_all
from tests.support import processes
from tests.support.fakes import FakeGateway, captured, declined
from tests.support.installed_methods import add_simulator_method
from tests.support.ports import free_port
from tests.support.timeouts import wait_until
from tests.support.world import Api, World, make_world

pytestmark = [pytest.mark.e2e, pytest.mark.full]

TOTAL = 159_000  # 1590.00 THB
OTHER_KEY = base64.b64encode(b"another 32 bytes than the first.").decode()


@pytest.fixture
def restored_settings(settings: Settings) -> Iterator[Settings]:
    """The settings for the restored database, which is dropped afterwards."""
    _, url = drill.restored_database(settings.database_url)
    yield settings.model_copy(update={"database_url": url})
    drill.drop(url)


@pytest.fixture
async def receiver(world: World) -> AsyncIterator[Receiver]:
    """The merchant's server, which accepts every event."""
    server = Receiver()
    server.secret = world.callback_secret
    await server.start()
    await world.rows("UPDATE merchant SET callback_url = $1, allow_http = true", server.url)
    yield server
    await server.stop()


def restore(settings: Settings, restored_settings: Settings, folder: Path) -> None:
    name, _ = drill.restored_database(settings.database_url)
    drill.run("restore", folder, settings.database_url, RESTORED=name)
    drill.run(
        "check", folder, restored_settings.database_url, **drill.variables_of(restored_settings)
    )


async def dump_unchanged_database(
    settings: Settings, tmp_path: Path
) -> tuple[Path, dict[str, tuple[int, str]]]:
    """Repeat the dump until the database does not change during it; return the folder and the rows.

    The API records calls and key uses asynchronously, up to ten seconds after the requests.
    """
    while True:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        rows = await drill.contents(settings.database_url)
        drill.run("dump", folder, settings.database_url)
        if await drill.contents(settings.database_url) == rows:
            return folder, rows


async def create_paid_payment(world: World) -> Payment:
    payment = await world.create()
    selected = await world.select(payment)
    capture = captured(TOTAL, reference=f"cap-{payment.id}")
    return await world.report(payment, selected.session.id, capture)


async def create_payment_in_every_status(api: Api) -> list[Payment]:
    """Create a payment in each status, and unassigned money."""
    world = api.world
    expiring = await world.create(expires_in_s=1)
    payments = [expiring, await world.create(), await world.create(), await world.create()]
    _, _, processing, failing = payments
    await world.select(processing)
    session = (await world.select(failing)).session
    await world.report(failing, session.id, declined())
    cancelled = await world.create(metadata='{"b":1.0,"a":"\\u00e9","b":10000000000000000000}')
    path = f"/v1/payments/{format_payment_id(cancelled)}/cancel"
    assert (await api.send("POST", path, headers=api.bearer())).status == 200
    double_paid, partly_refunded, fully_refunded = [
        await create_paid_payment(world) for _ in range(3)
    ]
    for payment, status, refunded in (
        (partly_refunded, "PARTIALLY_REFUNDED", "10"),
        (fully_refunded, "REFUNDED", "1590"),
    ):
        await world.rows(
            "UPDATE payment SET status = $2, refunded_amount = $3::text::numeric WHERE id = $1",
            *(payment.id, status, refunded),
        )
    await world.report(double_paid, double_paid.session_id, captured(TOTAL, reference="twice"))
    assert await world.cases(double_paid) == ["DOUBLE_PAYMENT"]

    async def has_expired() -> bool:
        return (await api.get(format_payment_id(expiring))).json["status"] == "EXPIRED"

    await wait_until(has_expired, "the payment expires after a second")
    return [*payments, cancelled, double_paid, partly_refunded, fully_refunded]


def format_payment_id(payment: Payment) -> str:
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
async def serve_api(settings: Settings, world: World, folder: Path) -> AsyncIterator[Api]:
    """Serve the API in a separate process."""
    # Other processes cannot use the fake gateway.
    await add_simulator_method(settings, world.merchant_id)
    port = free_port()
    with process(settings, folder, "api", "--port", str(port)):
        async with Api(f"http://127.0.0.1:{port}", world) as api:

            async def is_ready() -> bool:
                try:
                    return (await api.send("GET", "/readyz")).status == 200
                except aiohttp.ClientError:
                    return False

            await wait_until(is_ready, "the restored service is ready", drill.PATIENCE_S)
            yield api


async def test_a_restored_database_has_every_payment_and_continues_its_deliveries(
    api: Api, receiver: Receiver, settings: Settings, restored_settings: Settings, tmp_path: Path
) -> None:
    world = api.world
    payments = await create_payment_in_every_status(api)
    payment_ids = [format_payment_id(payment) for payment in payments]
    before = [await api.get(payment_id) for payment_id in payment_ids]
    assert {response.json["status"] for response in before} == {
        status.value for status in PaymentStatus
    }
    pending_event_ids = {
        row["event_id"] for row in await world.rows("SELECT event_id FROM delivery")
    }
    folder, dumped_rows = await dump_unchanged_database(settings, tmp_path)
    assert dumped_rows["delivery"][0] == len(pending_event_ids) == 6
    assert receiver.deliveries == []

    restore(settings, restored_settings, folder)
    assert await drill.contents(restored_settings.database_url) == dumped_rows
    async with serve_api(restored_settings, world, tmp_path) as restored_api:
        after = [await restored_api.get(payment_id) for payment_id in payment_ids]
        assert [(response.status, response.body) for response in after] == [
            (200, response.body) for response in before
        ]
        created = await restored_api.create()
        assert created.status == 201
        assert created.json["id"] > max(payment_ids)
    with process(restored_settings, tmp_path, "worker"):
        await wait_until(
            lambda: len(receiver.deliveries) >= len(pending_event_ids), "the events", 60
        )
    assert {UUID(delivery.webhook_id) for delivery in receiver.deliveries} == pending_event_ids
    assert receiver.verification_errors == []


async def test_a_restored_database_continues_its_sequences_and_decrypts_credentials(
    world: World,
    settings: Settings,
    restored_settings: Settings,
    gateway: FakeGateway,
    tmp_path: Path,
) -> None:
    drill.run("dump", tmp_path, settings.database_url)
    restore(settings, restored_settings, tmp_path)
    service = await open_service(restored_settings, {"fake": gateway})
    try:
        account = await service.accounts.get(world.account_id)
        assert account is not None
        assert account.credentials == {"signing_secret": world.signing_secret}
        new_world = await make_world(service, gateway)
    finally:
        await service.close()
    assert new_world.merchant_id == world.merchant_id + 1
    assert new_world.account_id == world.account_id + 1
    assert (new_world.card, new_world.transfer) == (world.transfer + 1, world.transfer + 2)


async def test_doctor_fails_on_a_restored_database_if_the_secrets_differ(
    world: World, settings: Settings, restored_settings: Settings, tmp_path: Path
) -> None:
    drill.run("dump", tmp_path, settings.database_url)
    restore(settings, restored_settings, tmp_path)
    for wrong_secret in ({"keyring": f"test:{OTHER_KEY}"}, {"pepper": OTHER_KEY}):
        changes = {name: SecretStr(value) for name, value in wrong_secret.items()}
        result = drill.command(restored_settings.model_copy(update=changes), "doctor")
        assert result.returncode == 1, result.stdout
        assert "FAIL" in result.stdout


async def test_a_restore_recovers_known_sessions_and_stores_callbacks_of_lost_sessions(
    api: Api, settings: Settings, restored_settings: Settings, gateway: FakeGateway, tmp_path: Path
) -> None:
    """The table in "After a restore" lists the data that is recovered automatically."""
    world = api.world
    known_payment = await world.create()
    session = (await world.select(known_payment)).session
    pending_payment = await world.create()
    drill.run("dump", tmp_path, settings.database_url)

    await world.report(known_payment, session.id, captured(TOTAL, reference="cap-known"))
    lost_session = (await world.select(pending_payment)).session
    key = str(uuid4())
    lost_id = (await api.create(key)).json["id"]

    restore(settings, restored_settings, tmp_path)
    service = await open_service(restored_settings, {"fake": gateway})
    restored_world = replace(world, service=service)
    try:
        await _inquire_about_known_session(restored_world, known_payment, session.id)
        await _receive_callback_of_lost_session(restored_world, pending_payment, lost_session.id)
    finally:
        await service.close()
    async with serve_api(restored_settings, world, tmp_path) as restored_api:
        assert (await restored_api.get(lost_id)).status == 404
        new_payment = await restored_api.create(key)
        assert (new_payment.status, new_payment.json["id"] == lost_id) == (201, False)


async def _inquire_about_known_session(
    restored_world: World, payment: Payment, session_id: UUID
) -> None:
    assert await restored_world.status(payment) == "PROCESSING"
    restored_world.gateway.answer_inquire = captured(TOTAL, reference="cap-known")
    await session_store.request_inquiry(restored_world.service.database, session_id)
    assert await inquire_all(restored_world) == 1
    assert await restored_world.status(payment) == "PAID"
    assert await restored_world.events(payment) == ["payment.completed"]


async def _receive_callback_of_lost_session(
    restored_world: World, payment: Payment, session_id: UUID
) -> None:
    """The callback is accepted and stored, but not assigned to a payment."""
    callback = VerifiedCallback(id="late", session_id=session_id, report=captured(TOTAL))
    service = restored_world.service
    receipt = await service.callback_receiver.receive(restored_world.account_id, callback, b"{}")
    assert receipt == CallbackResult(is_new=True, payment_id=None)
    [row] = await restored_world.rows("SELECT applied_at FROM callback WHERE callback_id = 'late'")
    assert row["applied_at"] is None
    assert await restored_world.status(payment) == "PENDING"
    assert (
        await restored_world.rows("SELECT 1 FROM capture WHERE payment_id = $1", payment.id) == []
    )
