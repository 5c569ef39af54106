"""No secret is lost when the key ring changes during operation."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import asyncpg
import pytest
from aiohttp import web
from pydantic import SecretStr
from standardwebhooks import Webhook

from payintent.accounting.ledger_operations import AdjustLedger
from payintent.chains.operations import AddContract
from payintent.core.access import Role
from payintent.core.errors import StorageUnavailableError
from payintent.db.database import Tx
from payintent.gateway_accounts.operations import AddAccount, ChangeAccount
from payintent.merchants import callback_secrets
from payintent.merchants.callback_secrets import RotateCallbackSecret
from payintent.merchants.operations import (
    CreatedMerchant,
    CreateMerchant,
    SetCallbackUrl,
)
from payintent.operators.operation import Actor, OperationContext
from payintent.operators.proposals_store import Proposal
from payintent.privacy.keyring_operations import RotateKeyring, ShowKeyring
from payintent.runtime.encryption import (
    EncryptionKeyError,
    make_callback_secret_context,
    make_legacy_account_context,
)
from payintent.runtime.settings import Settings
from payintent.service import Service, open_service
from tests.support.arrange import callback, captured, payment_of, select
from tests.support.contracts import CONTRACT, RECEIVER
from tests.support.http_server import clean_up
from tests.support.timeouts import PATIENCE_S
from tests.support.workers import working
from tests.support.world import Api, World

_ADA = Actor("cli:ada", "ticket 7")
_KEYS = {name: base64.b64encode(name[0].encode() * 32).decode() for name in ("b", "c", "x")}


@dataclass
class Ring:
    """Open the installation with different key rings, as other processes do."""

    world: World
    stack: AsyncExitStack

    async def open(self, *names: str) -> Service:
        """Start a process with these keys. It writes with the first key; `a` is the world's key."""
        ours = self.world.service.settings.keyring.get_secret_value().split(",")[0]
        keys = _KEYS | {"a": ours.partition(":")[2]}
        key_names = {"a": "test", "x": "test"}  # `x` is a different key with the same name as `a`
        ring = ",".join(f"{key_names.get(name, name)}:{keys[name]}" for name in names)
        settings = self.world.service.settings.model_copy(
            update={
                "keyring": SecretStr(ring),
                "database_lock_timeout_ms": 60_000,
                "database_statement_timeout_ms": 60_000,
                "webhook_poll_s": 0.05,
            }
        )
        service = await open_service(settings, {"fake": self.world.gateway})
        self.stack.push_async_callback(service.close)
        return service

    async def list_key_names(self) -> set[str]:
        """Return the ids of the keys that encrypt stored secrets."""
        rows = await self.world.rows(
            "SELECT sealed FROM callback_secret UNION ALL SELECT sealed FROM provider_account"
        )
        return {self.world.service.encryption.get_key_name(row["sealed"]) for row in rows}

    async def list_required_keys(self) -> set[str]:
        """Return the ids of the keys that every ring must contain."""
        keys = await self.world.perform(ShowKeyring())
        return {key.name for key in keys if key.retired_at is None}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Append the new keys to the world's ring, as in the first step of a rotation."""
    keyring = f"{settings.keyring.get_secret_value()},b:{_KEYS['b']},c:{_KEYS['c']}"
    return settings.model_copy(update={"keyring": SecretStr(keyring)})


@pytest.fixture
async def ring(world: World) -> AsyncIterator[Ring]:
    async with AsyncExitStack() as stack:
        yield Ring(world, stack)


async def _rotate(service: Service) -> Any:
    return await service.run_operation(RotateKeyring(), _ADA)


async def _check_everything_decrypts(service: Service, world: World) -> None:
    for row in await world.rows("SELECT id FROM provider_account"):
        assert await service.accounts.get(row["id"])
    for row in await world.rows("SELECT id FROM merchant"):
        secrets = (await callback_secrets.list_secrets(service.database, [row["id"]], 10))[
            row["id"]
        ]
        assert secrets
        for item in secrets:
            service.encryption.decrypt(
                item.sealed, make_callback_secret_context(row["id"], item.id)
            )


async def _wait_until(get_result: Callable[[], Awaitable[Any]], condition: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (result := await get_result()):
        assert time.monotonic() < deadline, f"timed out: {condition}"
        await asyncio.sleep(0.01)
    return result


async def _wait_for_blocked(world: World, count: int = 1) -> list[int]:
    """Wait until this many backends wait for a lock; return their process ids."""

    async def list_blocked() -> list[int]:
        rows = await world.rows(
            "SELECT DISTINCT l.pid FROM pg_locks l JOIN pg_stat_activity a USING (pid) "
            "WHERE NOT l.granted AND a.datname = current_database()"
        )
        return [row["pid"] for row in rows] if len(rows) == count else []

    return await _wait_until(list_blocked, f"{count} backends wait for a lock")


@asynccontextmanager
async def _paused_rotation(world: World, service: Service) -> AsyncIterator[asyncio.Task[Any]]:
    """Pause a rotation at the last account, when callback secrets are resealed but uncommitted."""
    last = await world.add_account("http://gateway.test/last", signing_secret="last")
    connection = await world.open_connection()
    holding = connection.transaction()
    await holding.start()
    await connection.execute("SELECT FROM provider_account WHERE id = $1 FOR UPDATE", last)
    rotating = asyncio.create_task(_rotate(service))
    try:
        await _wait_for_blocked(world)
        yield rotating
    finally:
        await holding.rollback()
        await connection.close()
        await asyncio.gather(rotating, return_exceptions=True)


@dataclass
class Shop:
    """A receiver that rejects requests with a wrong signature."""

    secret: str
    payment_ids: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    async def receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        try:
            Webhook(self.secret).verify(body, {k.lower(): v for k, v in request.headers.items()})
        except Exception as error:  # noqa: BLE001 - asserted by the test
            self.failures.append(repr(error))
            return web.Response(status=400)
        self.payment_ids.append(json.loads(body)["data"]["payment"]["id"])
        return web.Response()


@asynccontextmanager
async def _running_shop(world: World) -> AsyncIterator[Shop]:
    shop = Shop(world.callback_secret)
    app = web.Application()
    app.router.add_post("/hook", shop.receive)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    await world.perform(SetCallbackUrl(merchant_id=world.merchant_id, callback_url=url))
    try:
        yield shop
    finally:
        await clean_up(runner)


async def test_rotation_does_not_block_traffic_and_the_old_key_can_be_removed(
    api: Api, ring: Ring
) -> None:
    world = api.world  # the API runs the first step of a rotation, and the worker the second
    assert (await ring.list_required_keys(), await ring.list_key_names()) == ({"test"}, {"test"})
    second_step = await ring.open("b", "a")
    assert await ring.list_required_keys() == {"test", "b"}
    paid: list[str] = []

    async def pay() -> None:
        """Select a method and receive the callback; both read the encrypted credentials."""
        created = await api.create()
        assert (await select(api, created)).status == 200
        session_id = (await payment_of(api, created)).session_id
        reference = f"cap-{len(paid)}"
        report = captured(reference=reference)
        assert (await callback(api, session_id, report, reference)).status == 200
        paid.append(created.json["id"])

    async def is_delivered() -> bool:
        return set(shop.payment_ids) == set(paid)

    async with _running_shop(world) as shop, working(second_step):
        await pay()
        await _wait_until(is_delivered, "the first webhook is delivered")
        async with _paused_rotation(world, second_step) as rotating:
            for _ in range(3):
                await pay()
            await _wait_until(is_delivered, "webhooks are delivered during the rotation")
            assert not rotating.done()
        rotation = rotating.result()
        await pay()
        await _wait_until(is_delivered, "a webhook is delivered after the rotation")
    assert (shop.failures, len(paid)) == ([], 5)
    assert (
        rotation.writer,
        rotation.callback_secrets,
        rotation.provider_accounts,
        rotation.retired,
    ) == (*("b", 1, 2, ["test"]),)
    assert (await ring.list_required_keys(), await ring.list_key_names()) == ({"b"}, {"b"})
    await _check_everything_decrypts(await ring.open("b"), world)
    with pytest.raises(EncryptionKeyError, match="the key ring lacks key 'b'"):
        await ring.open("a")


async def test_repeating_a_rotation_changes_nothing(ring: Ring) -> None:
    service = await ring.open("b", "a")
    await _rotate(service)
    before = await ring.world.rows("SELECT id, sealed FROM callback_secret")
    rotation = await _rotate(service)
    assert (rotation.callback_secrets, rotation.provider_accounts, rotation.retired) == (0, 0, [])
    assert await ring.world.rows("SELECT id, sealed FROM callback_secret") == before


async def test_rotation_binds_legacy_credentials_to_their_account(ring: Ring) -> None:
    world = ring.world
    service = await ring.open("a", "b")
    before = service.encryption.encrypt(
        b'{"signing_secret":"fake-signing-secret"}',
        make_legacy_account_context(world.account_id),
    )
    await world.rows(
        "UPDATE provider_account SET sealed = $2 WHERE id = $1", world.account_id, before
    )
    assert await service.accounts.get(world.account_id)
    assert (await _rotate(service)).provider_accounts == 1
    assert (await _rotate(service)).provider_accounts == 0
    for column, value in (("base_url", "http://evil.test"), ("provider", "stripe")):
        original = await world.rows(
            f"SELECT {column} AS kept FROM provider_account WHERE id = $1",
            world.account_id,
        )
        change = f"UPDATE provider_account SET {column} = $2 WHERE id = $1"
        await world.rows(change, world.account_id, value)
        with pytest.raises(EncryptionKeyError, match="was encrypted with another key"):
            await (await ring.open("a", "b")).accounts.get(world.account_id)
        await world.rows(change, world.account_id, original[0]["kept"])
    assert await (await ring.open("a", "b")).accounts.get(world.account_id)


async def test_rotation_reseals_more_secrets_than_fit_into_a_batch(
    ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("payintent.privacy.keyring_operations._BATCH_SIZE", 2)
    for number in range(4):
        await ring.world.add_merchant(f"{number}")
        await ring.world.add_account(f"http://gateway.test/{number}", signing_secret="x")
    rotation = await _rotate(await ring.open("b", "a"))
    assert (rotation.callback_secrets, rotation.provider_accounts) == (5, 5)
    assert await ring.list_key_names() == {"b"}
    await _check_everything_decrypts(await ring.open("b"), ring.world)


async def test_a_crash_during_rotation_rolls_everything_back(ring: Ring) -> None:
    world = ring.world
    service = await ring.open("b", "a")
    async with _paused_rotation(world, service) as rotating:
        [pid] = await _wait_for_blocked(world)
        await world.rows("SELECT pg_terminate_backend($1)", pid)
        with pytest.raises(StorageUnavailableError):
            await rotating
    assert (await ring.list_key_names(), await ring.list_required_keys()) == (
        {"test"},
        {"test", "b"},
    )
    assert await world.rows("SELECT * FROM audit WHERE action = 'keyring.rotate'") == []
    await _check_everything_decrypts(await ring.open("a", "b"), world)
    await _rotate(service)
    assert (await ring.list_key_names(), await ring.list_required_keys()) == ({"b"}, {"b"})


async def test_sealing_waits_for_a_running_rotation_and_no_secret_is_missed(ring: Ring) -> None:
    world = ring.world
    service = await ring.open("b", "a")
    service_with_old_key = await ring.open("a", "b")
    account = ChangeAccount(account_id=world.account_id, credentials={"signing_secret": "new"})
    for change in (
        CreateMerchant(name="Third"),
        RotateCallbackSecret(merchant_id=world.merchant_id),
        AddAccount(provider="fake", base_url="http://x.test", credentials={"signing_secret": "b"}),
        AddContract(chain="bsc", address=CONTRACT, receiver=RECEIVER, deployed_block=1),
        account,
    ):
        async with _paused_rotation(world, service) as rotating:
            sealing = asyncio.create_task(service_with_old_key.run_operation(change, _ADA))
            await _wait_for_blocked(world, 2)
            assert not sealing.done()
        await rotating
        await sealing
        # The change was written with the old key, so this key is required again.
        assert await ring.list_key_names() == {"b", "test"}
        assert await ring.list_required_keys() == {"b", "test"}
        with pytest.raises(EncryptionKeyError, match="the key ring lacks key 'test'"):
            await ring.open("b")
        await _rotate(service)
        assert (await ring.list_key_names(), await ring.list_required_keys()) == ({"b"}, {"b"})


async def test_a_proposal_waits_for_a_rotation_and_keeps_its_key_required(ring: Ring) -> None:
    service = await ring.open("b", "a")
    service_with_old_key = await ring.open("a", "b")
    fee = AdjustLedger(
        debit="bank", credit="fee_income", amount_minor="500", currency="THB", note="a fee"
    )
    async with _paused_rotation(ring.world, service) as rotating:
        proposing = asyncio.create_task(
            service_with_old_key.submit(fee, replace(_ADA, role=Role.ADMIN))
        )
        await _wait_for_blocked(ring.world, 2)
        assert not proposing.done()
    await rotating
    assert isinstance(await proposing, Proposal)
    for writer, required_keys in ("test", {"b", "test"}), ("b", {"b"}):
        [row] = await ring.world.rows("SELECT sealed FROM proposal")
        assert ring.world.service.encryption.get_key_name(row["sealed"]) == writer
        assert await ring.list_required_keys() == required_keys
        await _rotate(service)


_release: ContextVar[asyncio.Event] = ContextVar("_release")


class _SlowCreateMerchant(CreateMerchant, frozen=True, kw_only=True):
    async def apply(self, context: OperationContext, tx: Tx) -> CreatedMerchant:
        new = await super().apply(context, tx)
        await _release.get().wait()
        return new


async def test_rotation_waits_for_an_uncommitted_secret(ring: Ring) -> None:
    release = asyncio.Event()
    _release.set(release)
    service = await ring.open("b", "a")
    service_with_old_key = await ring.open("a", "b")
    sealing = asyncio.create_task(
        service_with_old_key.run_operation(_SlowCreateMerchant(name="Slow"), _ADA)
    )
    query = (
        "SELECT count(*) AS n FROM pg_locks l JOIN pg_database d ON d.oid = l.database "
        "WHERE d.datname = current_database() AND l.relation = 'callback_secret'::regclass "
        "AND l.mode = 'RowExclusiveLock'"
    )

    async def is_sealed() -> bool:
        [row] = await ring.world.rows(query)
        return row["n"] == 1

    await _wait_until(is_sealed, "the secret is written and not committed")
    rotating = asyncio.create_task(_rotate(service))
    await _wait_for_blocked(ring.world)
    release.set()
    new = await sealing
    rotation = await rotating
    assert rotation.callback_secrets == 2
    assert (await ring.list_key_names(), await ring.list_required_keys()) == ({"b"}, {"b"})
    assert new.merchant.name == "Slow"


async def test_a_rotation_waits_for_another_rotation_and_repeats_its_work(ring: Ring) -> None:
    service, second_service = await ring.open("b", "a"), await ring.open("c", "a", "b")
    async with _paused_rotation(ring.world, service) as rotating:
        second = asyncio.create_task(_rotate(second_service))
        await _wait_for_blocked(ring.world, 2)
    assert set((await rotating).retired) == {"test", "c"}  # the second has not encrypted yet
    rotation = await second
    assert (rotation.callback_secrets, rotation.provider_accounts) == (1, 2)
    assert (await ring.list_key_names(), await ring.list_required_keys()) == ({"c"}, {"c"})
    await _check_everything_decrypts(await ring.open("c"), ring.world)


async def test_the_writing_key_is_registered_when_a_process_first_starts(ring: Ring) -> None:
    keys = await ring.world.perform(ShowKeyring())
    assert [(key.name, key.retired_at) for key in keys] == [("test", None)]
    await ring.open("b", "a")
    marks = {key.name: key.mark for key in await ring.world.perform(ShowKeyring())}
    assert set(marks) == {"test", "b"}
    assert marks["test"] != marks["b"]
    await ring.open("a", "b")  # starting a process does not retire a key
    assert await ring.list_required_keys() == {"test", "b"}


async def test_a_process_without_the_new_key_does_not_start(ring: Ring) -> None:
    await ring.open("a")
    await ring.open("b", "a")
    with pytest.raises(
        EncryptionKeyError, match="the key ring lacks key 'b', which is still in use"
    ):
        await ring.open("a")


async def test_a_different_key_with_a_known_name_is_rejected(ring: Ring) -> None:
    for names in (("x",), ("b", "x"), ("x", "b")):
        with pytest.raises(EncryptionKeyError, match="key 'test' does not belong"):
            await ring.open(*names)
    await _rotate(await ring.open("b", "a"))
    with pytest.raises(EncryptionKeyError, match="key 'test' does not belong"):
        await ring.open("b", "x")


async def test_a_retired_key_is_required_again_once_a_process_writes_with_it(ring: Ring) -> None:
    await _rotate(await ring.open("b", "a"))
    assert await ring.list_required_keys() == {"b"}
    await ring.open("a", "b")
    assert await ring.list_required_keys() == {"b", "test"}


async def test_concurrent_credential_changes_and_rotations_lose_no_secret(ring: Ring) -> None:
    """A change locks the ring before the account, as rotation does, so there is no deadlock."""
    world = ring.world
    service = await ring.open("b", "a")
    changes = [
        ChangeAccount(account_id=world.account_id, credentials={"signing_secret": f"{number}"})
        for number in range(10)
    ]
    await asyncio.gather(
        *(service.run_operation(change, _ADA) for change in changes),
        *(_rotate(service) for _ in range(3)),
    )
    assert (await ring.list_key_names(), await ring.list_required_keys()) == ({"b"}, {"b"})
    await _check_everything_decrypts(await ring.open("b"), world)


async def test_reading_credentials_does_not_wait_for_a_rotation(ring: Ring, world: World) -> None:
    """A session may start at an account whose credentials are being resealed."""
    service = await ring.open("b", "a")
    payment = await world.create()
    async with _paused_rotation(world, service):
        connection = await asyncpg.connect(
            world.service.settings.database_url, server_settings={"lock_timeout": "1"}
        )
        await connection.execute(
            "SELECT FROM provider_account WHERE id = $1 FOR KEY SHARE", world.account_id
        )
        await connection.close()
        await world.select(payment)
    assert await world.status(payment) == "PROCESSING"
