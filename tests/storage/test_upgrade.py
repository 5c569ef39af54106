"""A database of the first version, with everything in it, brought to this one."""

from decimal import Decimal
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest

from payintent.config import Settings
from payintent.domain import apikey
from payintent.operation.desk import Actor
from payintent.operation.keyring import ShowKeyring
from payintent.operation.providers import ListProviders
from payintent.operation.taxes import ListTaxes
from payintent.service import open_service
from payintent.storage import merchants, migrate, payments
from payintent.storage.sealed import account_place, read_secrets, secret_place
from tests.support.fakes import FakeGateway

_PAYMENT, _SESSION, _SECRET = UUID(int=1), UUID(int=2), UUID(int=3)
_KEY = apikey.make(apikey.MERCHANT, "A" * 8, "B" * 43)
_ROWS = f"""
INSERT INTO installation (secrets_fingerprint) VALUES ('0123456789abcdef');
INSERT INTO merchant (name, callback_url) VALUES ('Nimbus Books', 'https://shop.example.com/');
INSERT INTO merchant (name) VALUES ('Harbour Tea');
INSERT INTO provider_account (provider, base_url) VALUES ('fake', 'http://gateway.test');
INSERT INTO payment_method (merchant_id, account_id, kind, label, currencies)
VALUES (1, 1, 'card', 'Card', '{{THB}}');
INSERT INTO tax_rate VALUES ('TH', 0.07);
INSERT INTO payment (id, merchant_id, checkout_id, currency, amount, amount_text, payer_uid,
    include_pegged_assets, metadata, tax_manager, expires_at, created_at, updated_at)
VALUES ('{_PAYMENT}', 1, 'cs_0123456789abcdef', 'THB', 100, '100', 'buyer', true, '{{}}', 'NONE',
    clock() + interval '1 hour', clock(), clock());
INSERT INTO checkout VALUES ('cs_0123456789abcdef', '{_PAYMENT}');
INSERT INTO idempotency VALUES (1, 'create', '{UUID(int=4)}', '', '{_PAYMENT}', NULL, clock());
INSERT INTO session (id, payment_id, account_id, payment_method_id, provider, life, kind, label,
    country, currency, amount, fee_mode, fee_rate, fee_amount, estimated_tax, total_amount,
    total_minor)
VALUES ('{_SESSION}', '{_PAYMENT}', 1, 1, 'fake', 'open', 'card', 'Card', 'TH', 'THB', '100.00',
    'INCLUSIVE', '0', '0.00', '0.00', '100.00', 10000);
UPDATE payment SET status = 'PROCESSING', session_id = '{_SESSION}';
"""


@pytest.fixture
def database_url(empty_url: str) -> str:
    """The settings are those of a database that no migration has seen."""
    return empty_url


@pytest.fixture
async def old(settings: Settings, tmp_path: Path) -> asyncpg.Connection:
    """A connection to a database of the first version."""
    first = migrate.all_migrations()[0]
    with pytest.MonkeyPatch.context() as patch:
        (tmp_path / f"{first.name}.sql").write_text(first.sql)
        patch.setattr(migrate, "FOLDER", tmp_path)
        assert await migrate.migrate(settings.database_url) == ["0001_core"]
    connection = await asyncpg.connect(settings.database_url)
    await connection.execute(_ROWS)
    await _seal(connection, settings)
    return connection


async def _seal(connection: asyncpg.Connection, settings: Settings) -> None:
    secrets = read_secrets(settings)
    await connection.execute(
        "INSERT INTO callback_secret (id, merchant_id, sealed) VALUES ($1, 1, $2)",
        _SECRET,
        secrets.seal(b"s" * 32, secret_place(1, _SECRET), b"n" * 12),
    )
    await connection.execute(
        "UPDATE provider_account SET sealed = $1",
        secrets.seal(b'{"signing_secret":"x"}', account_place(1), b"n" * 12),
    )
    await connection.execute(
        "INSERT INTO api_key (public_id, merchant_id, name, digest) VALUES ($1, 1, 'first', $2)",
        _KEY.public_id,
        secrets.digest(_KEY.text),
    )


async def test_a_database_of_the_first_version_goes_on_working(
    old: asyncpg.Connection, settings: Settings, gateway: FakeGateway
) -> None:
    created_at = await old.fetchval("SELECT created_at FROM installation")
    await migrate.migrate(settings.database_url)
    states = await old.fetch("SELECT activation, activated_at, locale, countries FROM merchant")
    assert [(one["activation"], one["locale"], one["countries"]) for one in states] == [
        ("ACTIVE", "en", None)
    ] * 2
    assert all(one["activated_at"] is not None for one in states)
    assert await old.fetchval("SELECT created_at FROM installation") == created_at
    assert await old.fetchval("SELECT provider_name FROM session") == "fake"
    await old.close()

    service = await open_service(settings, {"fake": gateway})
    database, ada = service.database, Actor("Ada")
    known = {one.name: one for one in await service.perform(ListProviders(), ada)}
    assert known.keys() >= {"fake", "simulator", "stripe", "ecpay", "2c2p", "gateway_contract"}
    assert (known["fake"].enabled, known["fake"].wire_name) == (True, "fake")
    [tax] = await service.perform(ListTaxes(), ada)
    assert (tax.country, tax.rate) == ("TH", Decimal("0.07"))
    holder = await merchants.holder(database, _KEY.public_id)
    assert holder is not None
    assert (holder.merchant_id, holder.payable, holder.limits) == (1, {"THB"}, {})
    account = await service.accounts.open(1)
    assert account is not None
    assert account.credentials == {"signing_secret": "x"}
    [secret] = await merchants.secrets_of(database, 1, 10)
    assert service.secrets.open(secret.sealed, secret_place(1, secret.id)) == b"s" * 32
    seen = await payments.by_id(database, _PAYMENT)
    assert seen is not None
    assert seen.session is not None
    assert (seen.payment.status, seen.session.offer.provider_name) == ("PROCESSING", "fake")
    [key] = await service.perform(ShowKeyring(), ada)
    assert (key.name, key.retired_at) == ("test", None)
    await service.close()


async def test_the_first_process_after_the_upgrade_leaves_its_own_mark(
    old: asyncpg.Connection, settings: Settings, gateway: FakeGateway
) -> None:
    """The old fingerprint held a ring key, and could never have let it go."""
    await migrate.migrate(settings.database_url)
    assert await old.fetchval("SELECT pepper_mark FROM installation") is None
    service = await open_service(settings, {"fake": gateway})
    mark = await old.fetchval("SELECT pepper_mark FROM installation")
    assert mark == service.secrets.pepper_mark
    await service.close()
    await old.close()
