"""Databases of former versions, with everything in them, brought to this one."""

from decimal import Decimal
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest

from payintent.config import Settings
from payintent.domain import api_key
from payintent.domain.payable import payable_decimals
from payintent.encryption import callback_secret_context, first_account_place, load_encryption
from payintent.operations.base import Actor
from payintent.operations.keyring import ShowKeyring
from payintent.operations.providers import ListProviders
from payintent.operations.tax_rates import ListTaxRates
from payintent.payments.create_refund import CreateRefundRequest
from payintent.service import open_service
from payintent.storage import api_keys, callback_secrets, migrations_runner, payments
from tests.support.fakes import FakeGateway

_PAYMENT, _SESSION, _SECRET = UUID(int=1), UUID(int=2), UUID(int=3)
_KEY = api_key.make_api_key(api_key.MERCHANT, "A" * 8, "B" * 43)
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
_CREDITED, _STRAY, _ELSEWHERE, _CAPTURE = (UUID(int=number) for number in range(11, 15))
#: Money on a chain as the third version kept it: only what came for a session was a capture.
_MONEY = f"""
INSERT INTO chain_contract (account_id, chain, address, receiver, deployed_block)
VALUES (1, 'bsc', decode(repeat('01', 20), 'hex'), decode(repeat('02', 20), 'hex'), 0);
INSERT INTO chain_receipt (id, chain, account_id, block, block_hash, tx_hash, log_index, uuid,
    payer, token, receiver, amount, session_id, disposition, final_at)
SELECT r.id::uuid, 'bsc', 1, 7, '', decode(repeat(r.hash, 32), 'hex'), 3, '',
    decode(repeat('03', 20), 'hex'),
    CASE WHEN r.known THEN (SELECT address FROM chain_token WHERE chain = 'bsc' AND symbol = 'USDT')
        ELSE decode(repeat('04', 20), 'hex') END,
    '', r.amount, r.session_id::uuid, r.disposition, '2026-11-21 08:00:00+00'
FROM (VALUES
    ('{_CREDITED}', 'aa', true, 10000, '{_SESSION}', 'credited'),
    ('{_STRAY}', 'bb', true, 500, NULL, 'unknown_uuid'),
    ('{_ELSEWHERE}', 'cc', false, 600, NULL, 'unknown_uuid'),
    ('{UUID(int=15)}', 'dd', true, 700, NULL, 'wrong_receiver')
) AS r (id, hash, known, amount, session_id, disposition);
INSERT INTO capture (id, account_id, reference, session_id, payment_id, currency, amount_minor,
    credited, captured_at)
VALUES ('{_CAPTURE}', 1, '0x' || repeat('aa', 32) || ':3', '{_SESSION}', '{_PAYMENT}', 'USDT',
    10000, true, clock());
UPDATE payment SET status = 'PAID', paid_at = clock(), receipt_id = gen_random_uuid();
INSERT INTO money_case (id, kind, receipt_id, opened_at)
SELECT gen_random_uuid(), 'UNKNOWN_REFERENCE', id, clock()
FROM chain_receipt
WHERE disposition <> 'credited';
INSERT INTO money_case (id, kind, merchant_id, payment_id, session_id, opened_at)
VALUES (gen_random_uuid(), 'UNKNOWN_REFERENCE', 1, '{_PAYMENT}', '{_SESSION}', clock());
"""


@pytest.fixture
def database_url(empty_url: str) -> str:
    """The settings are those of a database that no migration has seen."""
    return empty_url


@pytest.fixture
async def old(settings: Settings, tmp_path: Path) -> asyncpg.Connection:
    """A connection to a database of the first version."""
    await _bring_to(1, settings, tmp_path)
    connection = await asyncpg.connect(settings.database_url)
    await connection.execute(_ROWS)
    await _seal(connection, settings)
    return connection


async def _bring_to(version: int, settings: Settings, folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        wanted = migrations_runner.all_migrations()[:version]
        for one in wanted:
            (folder / f"{one.name}.sql").write_text(one.sql)
        patch.setattr(migrations_runner, "FOLDER", folder)
        done = await migrations_runner.migrate(settings.database_url)
        assert done == [one.name for one in wanted][-len(done) :]


async def _seal(connection: asyncpg.Connection, settings: Settings) -> None:
    secrets = load_encryption(settings)
    await connection.execute(
        "INSERT INTO callback_secret (id, merchant_id, sealed) VALUES ($1, 1, $2)",
        _SECRET,
        secrets.encrypt(b"s" * 32, callback_secret_context(1, _SECRET), b"n" * 12),
    )
    await connection.execute(
        "UPDATE provider_account SET sealed = $1",
        secrets.encrypt(b'{"signing_secret":"x"}', first_account_place(1), b"n" * 12),
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
    await migrations_runner.migrate(settings.database_url)
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
    known = {one.name: one for one in await service.run_operation(ListProviders(), ada)}
    assert known.keys() >= {"fake", "simulator", "stripe", "ecpay", "2c2p", "gateway_contract"}
    assert (known["fake"].enabled, known["fake"].wire_name) == (True, "fake")
    [tax] = await service.run_operation(ListTaxRates(), ada)
    assert (tax.country, tax.rate) == ("TH", Decimal("0.07"))
    holder = await api_keys.find_by_public_id(database, _KEY.public_id)
    assert holder is not None
    assert (holder.merchant_id, holder.limits) == (1, {})
    assert payable_decimals(holder.market, holder.methods) == {"THB": 2}
    account = await service.accounts.get(1)
    assert account is not None
    assert account.credentials == {"signing_secret": "x"}
    [secret] = (await callback_secrets.list_secrets(database, [1], 10))[1]
    assert (
        service.encryption.decrypt(secret.sealed, callback_secret_context(1, secret.id))
        == b"s" * 32
    )
    seen = await payments.get(database, _PAYMENT)
    assert seen is not None
    assert seen.session is not None
    assert (seen.payment.status, seen.session.quote.provider_name) == ("PROCESSING", "fake")
    [key] = await service.run_operation(ShowKeyring(), ada)
    assert (key.name, key.retired_at) == ("test", None)
    await service.close()


async def test_the_first_process_after_the_upgrade_leaves_its_own_mark(
    old: asyncpg.Connection, settings: Settings, gateway: FakeGateway
) -> None:
    """The old fingerprint held a ring key, and could never have let it go."""
    await migrations_runner.migrate(settings.database_url)
    assert await old.fetchval("SELECT pepper_mark FROM installation") is None
    service = await open_service(settings, {"fake": gateway})
    mark = await old.fetchval("SELECT pepper_mark FROM installation")
    assert mark == service.encryption.pepper_mark
    await service.close()
    await old.close()


async def test_merchants_that_are_told_by_http_go_on_being_told(
    old: asyncpg.Connection, settings: Settings
) -> None:
    await old.execute("UPDATE merchant SET callback_url = 'HTTP://tea.example/' WHERE id = 2")
    await migrations_runner.migrate(settings.database_url)
    told = await old.fetch("SELECT callback_url, allow_http FROM merchant ORDER BY id")
    assert [tuple(one) for one in told] == [
        ("https://shop.example.com/", False),
        ("HTTP://tea.example/", True),
    ]
    with pytest.raises(asyncpg.CheckViolationError, match="merchant_callback_https"):
        await old.execute("UPDATE merchant SET allow_http = false")
    await old.close()


@pytest.fixture
async def third(old: asyncpg.Connection, settings: Settings, tmp_path: Path) -> asyncpg.Connection:
    """A connection to a database of the third version, in which money has come by a chain."""
    await _bring_to(3, settings, tmp_path)
    await old.execute(_MONEY)
    return old


async def test_money_that_nobody_knew_the_session_of_becomes_a_capture(
    third: asyncpg.Connection, settings: Settings
) -> None:
    before = await third.fetch("SELECT * FROM payment")
    await migrations_runner.migrate(settings.database_url)
    captures = await third.fetch(
        "SELECT receipt_id, reference, payment_id, currency, amount_minor, credited, captured_at "
        "FROM capture ORDER BY receipt_id"
    )
    assert [tuple(one)[:-1] for one in captures] == [
        (_CREDITED, "0x" + "aa" * 32 + ":3", _PAYMENT, "USDT", 10000, True),
        (_STRAY, "0x" + "bb" * 32 + ":3", None, "USDT", 500, False),
        (_ELSEWHERE, "0x" + "cc" * 32 + ":3", None, "0x" + "04" * 20, 600, False),
    ]
    finals = await third.fetchval("SELECT max(final_at) FROM chain_receipt")
    assert [one["captured_at"] for one in captures[1:]] == [finals] * 2
    [after] = await third.fetch("SELECT * FROM payment")
    assert dict(after) == dict(before[0]) | {"reserved_amount": 0}
    await third.close()


async def test_cases_find_the_money_that_they_are_about(
    third: asyncpg.Connection, settings: Settings
) -> None:
    cases = await third.fetchval("SELECT count(*) FROM money_case")
    await migrations_runner.migrate(settings.database_url)
    about = await third.fetch(
        "SELECT r.disposition, c.receipt_id = m.receipt_id AS found FROM money_case m "
        "LEFT JOIN chain_receipt r ON r.id = m.receipt_id "
        "LEFT JOIN capture c ON c.id = m.capture_id ORDER BY m.receipt_id"
    )
    assert [tuple(one) for one in about] == [
        ("unknown_uuid", True),
        ("unknown_uuid", True),
        ("wrong_receiver", None),  # that money is not ours to give back
        (None, None),
    ]
    assert len(about) == cases
    await third.close()


async def test_a_payment_of_a_former_version_can_be_given_back(
    third: asyncpg.Connection, settings: Settings, gateway: FakeGateway
) -> None:
    await migrations_runner.migrate(settings.database_url)
    service = await open_service(settings, {"fake": gateway})
    ask = CreateRefundRequest(merchant_id=1, payment_id=_PAYMENT, key=UUID(int=21), amount="40")
    refund = (await service.refund_creator.create(ask)).refund
    assert (refund.amount_minor, refund.destination) == (4000, "0x" + "03" * 20)
    await service.close()
    await third.close()


async def test_operators_of_before_are_admins_with_names_of_their_own(
    old: asyncpg.Connection, settings: Settings
) -> None:
    add = (
        "INSERT INTO operator_token (public_id, name, digest, created_at, revoked_at) "
        "VALUES ($1, $2, sha256(''), clock() - make_interval(days => $3), $4)"
    )
    gone = await old.fetchval("SELECT clock()")
    await old.execute(add, "aaaaaaaa", "Ada", 3, None)
    await old.execute(add, "bbbbbbbb", "ada", 2, None)
    await old.execute(add, "cccccccc", "Ada", 1, gone)
    await old.execute(add, "dddddddd", "Alan", 1, None)
    await migrations_runner.migrate(settings.database_url)
    rows = await old.fetch(
        "SELECT public_id, name, role, expires_at - clock() AS left FROM operator_token "
        "ORDER BY public_id"
    )
    assert [(row["name"], row["role"]) for row in rows if row["public_id"][0] in "abcd"] == [
        ("Ada (aaaaaaaa)", "admin"),
        ("ada", "admin"),
        ("Ada (cccccccc)", "admin"),
        ("Alan", "admin"),
    ]
    assert {row["left"].days for row in rows} <= {89, 90}
    await old.close()
