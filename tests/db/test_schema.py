"""The database also enforces every invariant: raw SQL that violates one is rejected."""

import re
from dataclasses import dataclass
from itertools import product
from uuid import UUID, uuid4

import asyncpg
import pytest

from payintent.db.migrations_runner import FOLDER
from payintent.payments.model import TRANSITIONS, PaymentStatus
from tests.support.fakes import captured
from tests.support.world import World

MIGRATIONS = "\n".join(path.read_text() for path in sorted(FOLDER.glob("*.sql")))
#: Triggers that do not reject statements, but record when a row changed.
RECORDING = {"merchant_market_changed", "payment_method_market_changed"}
#: A trigger that raises its errors with the name of another trigger.
SHARING_NAME = {"session_token_frozen"}
#: A key that the primary key implies. Foreign keys reference it.
IMPLIED = {"payment_link_slots"}

ADD_ENTRY = """
    INSERT INTO ledger_entry (fact_id, leg, currency, fact, debit, credit, amount)
    VALUES (:payment_id, 'whole', 'USD', {})
"""
#: An amount owed to a merchant, and a payout of part of it.
ADD_OWED = ADD_ENTRY.replace("leg,", "merchant_id, leg,").replace(
    "'whole'", ":merchant_id, 'whole'"
)
OWED = ADD_OWED.format("'capture', 'bank', 'merchant_payable:' || :merchant_id, 100")
ADD_PAYOUT = """
    INSERT INTO payout (id, merchant_id, currency, amount_minor, reference, paid_on, recorded_by)
    VALUES (gen_random_uuid(), :merchant_id, 'USD', {}, 'now()', 'ann')
"""
PAYOUT = OWED + ";" + ADD_PAYOUT.format("10, 'transfer'")
REVERSE = "UPDATE payout SET reversed_at = now(), reversed_by = 'ann', reversal_note = 'back'"
ADD_GATEWAY_PAYOUT = """
    INSERT INTO gateway_payout (id, account_id, currency, amount_minor, fee_minor, reference,
        paid_on, recorded_by)
    VALUES (gen_random_uuid(), :account_id, 'USD', {}, 'now()', 'ann')
"""
ADD_RUN = """
    INSERT INTO reconciliation_run (id, account_id, source, name, sha256, status, lease_until,
        problem, ended_at)
    VALUES (gen_random_uuid(), :account_id, 'folder', 'a.csv', '00', 'failed', now(), 'no', now())
"""
GATEWAY_PAYOUT = ADD_GATEWAY_PAYOUT.format("10, 1, 'po_1'")
ADD_STATEMENT = """
    INSERT INTO statement (id, merchant_id, currency, chain, number, day, time_zone,
        opening_minor, payments_minor, fees_minor, tax_minor, refunds_minor, disputes_minor,
        adjustments_minor, payouts_minor, closing_minor, first_number, last_number, until_at,
        closed_number, closed_at)
    VALUES (gen_random_uuid(), :merchant_id, 'USD', '', {number}, 'epoch'::date + {day}, 'UTC',
        {opening}, 5, 0, 0, 0, 0, 0, 0, {closing}, 0, 0, now(), 0, now())
"""
STATEMENT = ADD_STATEMENT.format(number=1, day=1, opening=0, closing=5) + ";"
STATEMENT_CLOSE = "INSERT INTO statement_close VALUES (:merchant_id, 'epoch', 'epoch', 5, 6);"
#: Columns that the schema requires if a payment has the status.
COLUMNS = {
    "PENDING": {},
    "PROCESSING": {},
    "PAID": {"paid_at": "clock()", "receipt_id": "gen_random_uuid()"},
    "FAILED": {"failed_at": "clock()", "failure_reason": "'DECLINED'"},
    "EXPIRED": {"expired_at": "clock()"},
    "CANCELLED": {"cancelled_at": "clock()"},
}
COLUMNS["PARTIALLY_REFUNDED"] = COLUMNS["PAID"] | {"refunded_amount": "amount / 2"}
COLUMNS["REFUNDED"] = COLUMNS["PAID"] | {"refunded_amount": "amount"}
_ALL = dict.fromkeys(
    ("paid_at", "receipt_id", "failed_at", "failure_reason", "expired_at", "cancelled_at"), "NULL"
) | {"refunded_amount": "0"}


@dataclass
class Scene:
    """Runs raw SQL on a paid payment with its session, capture, case, event and delivery."""

    connection: asyncpg.Connection
    payment_id: UUID
    session_id: UUID
    account_id: int
    method_id: int
    merchant_id: int

    async def run(self, query: str) -> None:
        """Run a statement. If it contains `:name`, replace it with the scene's value."""
        for name in ("payment_id", "session_id", "account_id", "method_id", "merchant_id"):
            value = getattr(self, name)
            query = query.replace(
                f":{name}", f"'{value}'" if isinstance(value, UUID) else str(value)
            )
        await self.connection.execute(query)

    async def get_violation(self, query: str) -> str | None:
        """Run a statement and roll it back; return the violated constraint."""
        transaction = self.connection.transaction()
        await transaction.start()
        try:
            await self.run(query)
        except asyncpg.IntegrityConstraintViolationError as error:
            return error.constraint_name
        finally:
            await transaction.rollback()
        return None

    async def add_payment_with_status(self, status: str) -> UUID:
        """Insert a payment that already has this status."""
        payment_id, columns = uuid4(), _ALL | COLUMNS[status]
        await self.run(
            f"""
            INSERT INTO payment (id, merchant_id, checkout_id, status, currency, amount,
                amount_text, payer_uid, include_pegged_assets, metadata, tax_manager, session_id,
                expires_at, created_at, updated_at, {", ".join(columns)})
            SELECT '{payment_id}', :merchant_id, 'cs_{payment_id.hex[:16]}', '{status}', 'USD',
                amount, '1', 'buyer', true, '{{}}', 'NONE', :session_id, clock(), clock(), clock(),
                {", ".join(columns.values())}
            FROM (VALUES (1.0)) AS one (amount)
            """
        )
        return payment_id


@pytest.fixture
async def scene(world: World, raw: asyncpg.Connection) -> Scene:
    payment = await world.create()
    selected = await world.select(payment)
    await world.report(payment, selected.session.id, captured(159000))
    await world.report(payment, selected.session.id, captured(1, reference="second"))
    return Scene(
        connection=raw,
        payment_id=payment.id,
        session_id=selected.session.id,
        account_id=world.account_id,
        method_id=world.card,
        merchant_id=world.merchant_id,
    )


async def test_the_database_allows_only_the_status_transitions_of_the_domain(scene: Scene) -> None:
    allowed = set()
    for before in PaymentStatus:
        payment_id = await scene.add_payment_with_status(before)
        for after in PaymentStatus:
            assignments = ", ".join(
                f"{name} = {value}" for name, value in (_ALL | COLUMNS[after]).items()
            )
            query = f"UPDATE payment SET status = '{after}', {assignments}"
            violation = await scene.get_violation(f"{query} WHERE id = '{payment_id}'")
            assert violation in {None, "payment_arrow"}
            if violation is None:
                allowed.add((before, after))
    arrows = {(before, arrow.new_status) for (before, _), arrow in TRANSITIONS.items()}
    assert {pair for pair in allowed if pair[0] is not pair[1]} == {
        pair for pair in arrows if pair[0] is not pair[1]
    }
    assert len(list(product(PaymentStatus, PaymentStatus))) == 64


PAYMENT = "UPDATE payment SET {} WHERE id = :payment_id"
WITHOUT_OTHERS = """
    ALTER TABLE payment DROP CONSTRAINT payment_refund_state, DROP CONSTRAINT payment_remainder
"""
SESSION = "UPDATE session SET {} WHERE id = :session_id"
CAPTURE = "UPDATE capture SET {} WHERE payment_id = :payment_id AND credited"
METHOD = "UPDATE payment_method SET {} WHERE id = :method_id"
#: The test merchant of the scene's merchant.
TEST_SIDE = """
    INSERT INTO merchant (name, livemode, live_merchant) VALUES ('Test', false, :merchant_id)
"""
ADD_TEST_SESSION = f"""
    {TEST_SIDE};
    INSERT INTO provider (name, wire_name) VALUES ('test', 'test') ON CONFLICT DO NOTHING;
    INSERT INTO provider_account (provider, base_url, merchant_id, livemode)
    SELECT 'test', '', id, false FROM merchant WHERE NOT livemode;
    INSERT INTO test_session
        (session_id, account_id, amount_minor, currency, return_url, expires_at, status)
    SELECT gen_random_uuid(), id, 1, 'USD', '', clock(), 'open'
    FROM provider_account WHERE NOT livemode;
    UPDATE test_session SET {{}}
"""
ADD_TEST_REFUND = f"""
    {ADD_TEST_SESSION.format("currency = 'USD'")};
    INSERT INTO test_refund (refund_id, account_id, session_id, amount_minor, state)
    SELECT gen_random_uuid(), account_id, session_id, 1, 'done' FROM test_session;
    UPDATE test_refund SET {{}}
"""
ADD_TEST_TRANSFER = f"""
    {ADD_TEST_SESSION.format("currency = 'USDT'")};
    INSERT INTO test_transfer (session_id, token, amount, in_time)
    SELECT session_id, 'USDT', 1, true FROM test_session;
    UPDATE test_transfer SET {{}}
"""
SAME_ID = """
    INSERT INTO merchant (id, name) OVERRIDING SYSTEM VALUE VALUES (:merchant_id, 'Same')
"""
MERCHANT = "UPDATE merchant SET {} WHERE id = :merchant_id"
ADD_SESSION = """
    INSERT INTO session (id, payment_id, account_id, payment_method_id, provider,
            provider_name, kind, label,
        country, currency, amount, fee_mode, fee_rate, fee_amount, estimated_tax, total_amount,
        total_minor)
    SELECT gen_random_uuid(), payment_id, account_id, payment_method_id, provider,
        provider_name, kind, label,
        country, currency, amount, fee_mode, fee_rate, fee_amount, estimated_tax, total_amount, {}
    FROM session
    WHERE id = :session_id
"""
ADD_CAPTURE = """
    INSERT INTO capture (id, account_id, reference, session_id, payment_id, currency, amount_minor,
        credited, captured_at)
    VALUES (gen_random_uuid(), :account_id, '{}', :session_id, :payment_id, 'THB', 1, {}, clock())
"""
ADD_CASE = """
    INSERT INTO money_case
        (id, kind, merchant_id, payment_id, session_id, capture_id, status, opened_at)
    SELECT gen_random_uuid(), {}, merchant_id, payment_id, session_id, {}, {}, clock()
    FROM money_case
    WHERE payment_id = :payment_id
"""
ADD_TOKEN = """
    INSERT INTO operator_token (public_id, name, digest) VALUES ({}, {}, {})
"""
ADD_IDENTITY = """
    INSERT INTO operator_identity (id, issuer, subject, name, role, expires_at)
    VALUES (gen_random_uuid(), {}, {}, {}, {}, clock())
"""
ADD_GATEWAY_CALL = """
    INSERT INTO gateway_call
        (request, session_id, outcome, detail, at, account_id, duration_ms)
    VALUES ({}, clock(), :account_id, 1)
"""
ADD_CONSOLE_SESSION = """
    INSERT INTO console_session (id, token_public_id, digest, browser, expires_at)
    VALUES (gen_random_uuid(), NULL, '', '', clock())
"""
ADD_MAIL = "INSERT INTO mail (kind, payment_id, sealed, attempts) VALUES ({}, {}, {}, {})"
ADD_REFUND_MAIL = "INSERT INTO mail (kind, refund_id, sealed) VALUES ({}, {}, {})"
ADD_MEMBER = """
    INSERT INTO member (id, merchant_id, email, role, invited_by)
    VALUES (gen_random_uuid(), :merchant_id, {}, {}, {})
"""
A_MEMBER = ADD_MEMBER.format("'a@b.test'", "'finance'", "'ann'") + ";"
ADD_PASSKEY = (
    A_MEMBER
    + """
    INSERT INTO member_passkey
        (id, member_id, credential_id, public_key, sign_count, challenged_at)
    SELECT id, id, {}, {}, {}, clock()
    FROM member
"""
)
ADD_PROPOSAL = """
    INSERT INTO proposal (id, action, sealed, changes, proposed_by, why)
    VALUES (gen_random_uuid(), 'chain.set', '', ARRAY['x'], 'ann', '');
    UPDATE proposal SET {}
"""
DECIDED = "status = 'APPROVED', decided_by = {}, decided_at = clock(), sealed = {}"
ADD_EVENT = """
    INSERT INTO event (id, payment_id, merchant_id, type, body, occurred_at)
    VALUES (gen_random_uuid(), :payment_id, :merchant_id, '{}', '{{}}', clock())
"""

ADD_RULE = """
    INSERT INTO fraud_rule (kind, value, count_max, window_s, code, level, score)
    VALUES ({}, {}, {}, {}, 'CODE', 'HIGH', 100)
"""
SET_RULE = ADD_RULE.format("'PAYER'", "'buyer'", "NULL", "NULL") + "; UPDATE fraud_rule SET {}"
ADD_DECISION = """
    INSERT INTO fraud_decision (id, merchant_id, payment_id, rule_id, code, level, score)
    SELECT gen_random_uuid(), :merchant_id, :payment_id, id, code, level, score
    FROM fraud_rule
"""
ADD_LINE = """
    INSERT INTO audit (id, who, why, action, details)
    VALUES (gen_random_uuid(), {}, '', 'tax.set', '{{}}')
"""
ADD_CONTRACT = """
    INSERT INTO chain_contract (account_id, chain, address, receiver, deployed_block)
    VALUES (:account_id, 'native', {}, {}, {})
"""
ADDRESS = "decode(repeat('01', 20), 'hex')"
CONTRACT = ADD_CONTRACT.format(ADDRESS, ADDRESS, 0)
WATCHED = "INSERT INTO chain_cursor (chain, block, watched_until) VALUES ('bsc', 1, now())"
ADD_SAME_CONTRACT = """
    INSERT INTO provider_account (provider, base_url) VALUES ('fake', '');
    INSERT INTO chain_contract (account_id, chain, address, receiver, deployed_block)
    SELECT (SELECT max(id) FROM provider_account), chain, address, receiver, 0 FROM chain_contract
"""
ADD_RECEIPT = """
    INSERT INTO chain_receipt (id, chain, account_id, block, block_hash, tx_hash, log_index, uuid,
        payer, token, receiver, amount, session_id, disposition, final_at)
    VALUES (gen_random_uuid(), 'native', :account_id, 1, '', '', {}, '', '', '', '', 1, {}, {},
        clock())
"""
ADD_FACTORY = f"""
    INSERT INTO chain_contract (account_id, chain, address, receiver, deployed_block, forwarder,
        refund_account_id)
    VALUES (:account_id, 'native', {ADDRESS}, {ADDRESS}, 0, {{}}, {{}})
"""
FACTORY = ADD_FACTORY.format(ADDRESS, ":account_id")
ADD_DEPOSIT_ADDRESS = """
    INSERT INTO deposit_address (session_id, account_id, uuid, address, from_block)
    VALUES (:session_id, :account_id, {}, {}, {})
"""
UUID_BYTES = "decode(repeat('01', 16), 'hex')"
DEPOSIT_ADDRESS = ADD_DEPOSIT_ADDRESS.format(UUID_BYTES, ADDRESS, 0)
DEPOSIT = ADD_RECEIPT.replace("disposition,", "disposition, mined_at,").format(
    0, ":session_id", "'deposit', clock()"
)
ADD_SIGHTING = """
    INSERT INTO chain_sighting (chain, tx_hash, log_index, session_id, exact, block, seen_at, token,
        amount)
    VALUES ('native', '', 0, :session_id, true, 1, clock(), {})
"""
ADD_HINT = "INSERT INTO chain_hint (session_id, tx_hash, step, state) VALUES (:session_id, {})"
HASH = "sha256('')"
ADD_ONCHAIN_SESSION = """
    INSERT INTO session (id, payment_id, account_id, payment_method_id, provider,
        provider_name, kind, label, country, currency, amount, fee_mode, fee_rate, fee_amount,
        estimated_tax, total_amount, total_minor, life, reference)
    SELECT gen_random_uuid(), payment_id, account_id, payment_method_id, 'gateway_contract',
        provider_name, kind, label, country, currency, amount, fee_mode, fee_rate, fee_amount,
        estimated_tax, total_amount, total_minor, 'open', '0x'
    FROM session
    WHERE id = :session_id
"""
ADD_OUTAGE = (
    "INSERT INTO gateway_outage (account_id, channel, until) VALUES (:account_id, {}, clock())"
)
ADD_ENDPOINT_OUTAGE = """
    INSERT INTO endpoint_outage (merchant_id, until, trips, detail)
    VALUES ({}, clock(), {}, 'HTTP 500')
"""
#: A refund. The columns determine whether it is valid, and whether it is for a case.
ADD_REFUND = """
    INSERT INTO refund (id, merchant_id, payment_id, capture_id, case_id, amount, amount_text,
        currency, amount_minor, reason, status, failure_reason, step, requested_by, approved_by)
    SELECT gen_random_uuid(), {merchant_id}, {payment_id}, c.id, {case_id}, {amount}, {amount_text},
        'THB', {amount_minor}, {reason}, {status}, {failure_reason}, {step}, 'ann', {approved_by}
    FROM capture c
    JOIN money_case m ON m.capture_id = c.id
"""
OF_PAYMENT = {
    "merchant_id": ":merchant_id",
    "payment_id": ":payment_id",
    "case_id": "NULL",
    "amount": "1",
    "amount_text": "'1'",
    "amount_minor": "1",
    "reason": "NULL",
    "status": "'PENDING'",
    "failure_reason": "NULL",
    "step": "'queued'",
    "approved_by": "NULL",
}
OF_CASE = OF_PAYMENT | {"case_id": "m.id", "amount": "NULL", "amount_text": "NULL"}
ADD_CHAIN_REFUND = """
    INSERT INTO chain_refund (id, chain, account_id, block, tx_hash, log_index, uuid, refund_ref,
        token, amount, destination, sender, disposition, refund_id, final_at)
    VALUES (gen_random_uuid(), 'native', :account_id, 1, '', {}, '', gen_random_uuid(), '', 1, '',
        '', {}, {}, clock())
"""
THE_REFUND = "(SELECT id FROM refund WHERE requested_by = 'ann')"
ADD_SAME_RECEIPT_CAPTURE = """
    INSERT INTO capture (id, account_id, reference, currency, amount_minor, credited, captured_at,
        receipt_id)
    SELECT gen_random_uuid(), :account_id, n::text, 'THB', 1, false, clock(), r.id
    FROM chain_receipt r
    CROSS JOIN generate_series(1, 2) AS n
"""
ADD_LIMIT = "INSERT INTO rate_limit (merchant_id, class, per_s, burst) VALUES (:merchant_id, {})"


def quoted(text: str) -> str:
    return f"'{text}'"


ADD_DISPUTE = """
    INSERT INTO dispute (id, account_id, reference, capture_id, case_id, state, funds, amount_minor,
        currency, reason, held_minor)
    SELECT gen_random_uuid(), :account_id, {reference}, c.id,
        (SELECT id FROM money_case WHERE kind {kind} 'RECONCILIATION' LIMIT 1), {state}, {funds},
        {amount_minor}, 'THB', {reason}, {held_minor}
    FROM capture c
    WHERE c.payment_id = :payment_id AND c.credited
"""
DISPUTE = {
    "reference": "'du_1'",
    "kind": "<>",
    "state": "'open'",
    "funds": "'withdrawn'",
    "amount_minor": "1",
    "reason": "'fraudulent'",
    "held_minor": "1",
}


def dispute(**changes: str) -> str:
    return ADD_DISPUTE.format(**(DISPUTE | changes))


def refund(base: dict[str, str] = OF_PAYMENT, **changes: str) -> str:
    return ADD_REFUND.format(**(base | changes))


FIGURE = "INSERT INTO hourly_figure VALUES (clock(), '{}', '{}', 'THB', 1, 1)"
ADD_BATCH = """
    INSERT INTO sweep_batch (id, chain, account_id, token, sender, tx_hash, ended_at, result,
        gas_cost)
    SELECT gen_random_uuid(), 'native', 1, decode(repeat('00', {token}), 'hex'),
        decode(repeat('00', {sender}), 'hex'), decode(repeat('00', {hash}), 'hex'), clock(),
        {result}, {gas}"""


def add_sweep(**changes: object) -> str:
    fields: dict[str, object] = {"uuid_bytes": 16, "token_bytes": 20, "succeeded": True}
    fields |= {"amount": 5, "received": 5, "count": 1} | changes
    return """
        INSERT INTO deposit_sweep (id, chain, account_id, uuid, session_id, token, currency,
            succeeded, amount, received, block, block_hash, tx_hash, log_index)
        SELECT gen_random_uuid(), 'native', 1, decode(repeat('00', {uuid_bytes}), 'hex'),
            gen_random_uuid(), decode(repeat('00', {token_bytes}), 'hex'), 'USDT', {succeeded},
            {amount}, {received}, 1, '', '', 0
        FROM generate_series(1, {count})""".format(**fields)


_LINK_ID = "'00000000-0000-7000-8000-000000000001'"


def add_link(**changes: object) -> str:
    """Add a payment link in the payment's currency, with an open amount."""
    values = {
        "id": _LINK_ID,
        "merchant_id": ":merchant_id",
        "token": quoted("lnk_" + "a" * 22),
        "key": "gen_random_uuid()",
        "request_hash": "''",
        "title": "'A book'",
        "currency": "(SELECT currency FROM payment WHERE id = :payment_id)",
        "max_uses": 2,
        "created_by": "'ann'",
    } | changes
    texts = ", ".join(str(value) for value in values.values())
    return f"INSERT INTO payment_link ({', '.join(values)}) VALUES ({texts});"


def add_link_use(slot: int = 1, slots: int = 2) -> str:
    return f"INSERT INTO payment_link_use VALUES ({_LINK_ID}, {slot}, {slots}, :payment_id);"


VIOLATIONS: list[tuple[str, str]] = [
    ("installation_only_one", "UPDATE installation SET only_one = false"),
    (
        "configuration_version_only_row",
        "INSERT INTO configuration_version (only_row) VALUES (false)",
    ),
    ("console_session_short",
     ("INSERT INTO console_session (id, token_public_id, digest, browser, expires_at) VALUES "
     "(gen_random_uuid(), 'AAAAAAAA', '', '', clock() + interval '13 hours')")),
    ("figure_mark_only_row",
     "INSERT INTO figure_mark SELECT false, counted_until, closed_until FROM figure_mark"),
    ("hourly_figure_kind", FIGURE.format("currency", "LOST")),
    ("hourly_figure_subject", FIGURE.format("merchant", "PAID")),
    ("merchant_accent_colour", MERCHANT.format("accent_colour = 'blue'")),
    ("merchant_refund_approval", MERCHANT.format("refund_approval_above = '[]'")),
    ("merchant_name", MERCHANT.format("name = ''")),
    ("merchant_tax_manager", MERCHANT.format("tax_manager = 'MAYBE'")),
    ("merchant_default_country", MERCHANT.format("default_country = 'USA'")),
    ("api_key_public_id", "UPDATE api_key SET public_id = 'short'"),
    ("api_key_digest", r"UPDATE api_key SET digest = '\x00'"),
    ("operator_token_public_id", ADD_TOKEN.format("'short'", "'name'", "sha256('')")),
    ("operator_token_name", ADD_TOKEN.format("'12345678'", "''", "sha256('')")),
    ("operator_token_digest", ADD_TOKEN.format("'12345678'", "'name'", "''")),
    ("payment_method_kind", METHOD.format("kind = 'cash'")),
    ("payment_method_fee_mode", METHOD.format("fee_mode = 'NONE'")),
    ("payment_method_fee_rate", METHOD.format("fee_rate = 1.1")),
    ("payment_method_fee_rate", METHOD.format("fee_rate = -0.1")),
    ("payment_method_limits", METHOD.format("limits = array_fill('USD::'::text, ARRAY[101])")),
    *(
        ("payment_method_label_translations", METHOD.format(f"label_translations = {value}"))
        for value in (
            *("'[]'", "'1'", "'null'"),
            *("""'{"th": 1}'""", """'{"th": null}'""", """'{"th": ["Card"]}'"""),
            *("""'{"th": ""}'""", r"""'{"th": "a\nb"}'"""),
            *("""'{"": "a"}'""", """'{"Thai": "a"}'"""),
            "jsonb_build_object('th', repeat('x', 101))",
        )
    ),
    ("tax_rate_country", "INSERT INTO tax_rate VALUES ('USA', 0)"),
    ("tax_rate_rate", "INSERT INTO tax_rate VALUES ('US', 1.1)"),
    ("payment_status", "ALTER TABLE payment DISABLE TRIGGER payment_arrow; "
        + PAYMENT.format("status = 'LOST', paid_at = NULL")),
    ("payment_amount", PAYMENT.format("amount = 0")),
    ("payment_payer_uid", PAYMENT.format("payer_uid = ''")),
    ("payment_payer_uid", PAYMENT.format("payer_uid = repeat('x', 256)")),
    ("payment_tax_manager", PAYMENT.format("tax_manager = 'MAYBE'")),
    *(
        ("payment_refunded", f"{WITHOUT_OTHERS}; {PAYMENT.format(f'refunded_amount = {amount}')}")
        for amount in ("amount + 0.01", "-0.01")
    ),
    *(
        (f"payment_{column}", PAYMENT.format(f"{column} = {value}"))
        for column in ("return_url", "cancel_url")
        for value in (
            *("''", "'javascript:alert(1)'", "'//shop.example'", "'https://shop.example/#paid'"),
            *("'https://ann@shop.example/'", "'https:///shop.example'", r"'https://a.example\b'"),
            *(r"E'https://shop.example/\n'", "'https://shöp.example'", "'https://a.example/ b'"),
            "'https://shop.example/' || repeat('a', 2028)",
        )
    ),
    ("payment_paid", PAYMENT.format("paid_at = NULL")),
    ("payment_paid", PAYMENT.format("receipt_id = NULL")),
    ("payment_failed", PAYMENT.format("failed_at = clock(), failure_reason = 'DECLINED'")),
    ("payment_expired", PAYMENT.format("expired_at = clock()")),
    ("payment_cancelled", PAYMENT.format("cancelled_at = clock()")),
    ("payment_has_session", PAYMENT.format("session_id = NULL")),
    ("payment_session", PAYMENT.format("session_id = gen_random_uuid()")),
    ("payment_arrow", PAYMENT.format("status = 'PENDING', paid_at = NULL")),
    ("session_life", SESSION.format("life = 'lost', ended_at = NULL")),
    ("session_ended", SESSION.format("life = 'open'")),
    ("session_ended", SESSION.format("outcome = NULL")),
    ("session_number", SESSION.format("number = 21")),
    ("session_total", ADD_SESSION.format("0")),
    ("session_one_opening", f"{ADD_SESSION.format('1')}; {ADD_SESSION.format('2')}"),
    *(
        ("session_quote_frozen", SESSION.format(f"{column} = {column}"))
        for column in (
            *("payment_id", "account_id", "payment_method_id", "provider", "currency", "amount"),
            *("fee_mode", "fee_rate", "fee_amount", "estimated_tax", "total_amount", "total_minor"),
        )
    ),
    ("capture_reference", ADD_CAPTURE.format("cap-1", "false")),
    ("capture_one_credited", ADD_CAPTURE.format("another", "true")),
    ("capture_amount", CAPTURE.format("amount_minor = -1, refunded_minor = -1")),
    ("capture_refunded_minor", CAPTURE.format("refunded_minor = -1")),
    ("capture_reserved_minor", CAPTURE.format("reserved_minor = -1")),
    ("capture_remainder", CAPTURE.format("refunded_minor = amount_minor, reserved_minor = 1")),
    ("capture_remainder", CAPTURE.format("refunded_minor = amount_minor + 1")),
    ("money_case_kind", ADD_CASE.format("'GIFT'", "NULL", "'OPEN'")),
    ("money_case_status",
        "UPDATE money_case SET status = 'LOST', closed_at = clock(), closed_by = 'ann'"),
    ("money_case_closed", "UPDATE money_case SET status = 'ACCEPTED'"),
    ("money_case_closed", "UPDATE money_case SET status = 'ACCEPTED', closed_at = clock()"),
    ("money_case_closed", "UPDATE money_case SET status = 'ACCEPTED', closed_by = 'ann'"),
    ("money_case_closed", "UPDATE money_case SET closed_at = clock()"),
    ("money_case_closed", "UPDATE money_case SET closed_by = 'ann'"),
    ("money_case_about", "UPDATE money_case SET session_id = NULL, capture_id = NULL"),
    ("money_case_once", ADD_CASE.format("kind", "capture_id", "'OPEN'")),
    ("money_case_once", ";".join([ADD_CASE.format("'RECONCILIATION'", "NULL", "'OPEN'")] * 2)),
    ("event_type", ADD_EVENT.format("payment.created")),
    *(
        ("event_one_terminal", ADD_EVENT.format(f"payment.{end}"))
        for end in ("completed", "failed", "expired", "cancelled")
    ),
    ("event_feed_position", "UPDATE event SET feed_position = 0"),
    ("event_feed_order", ";".join([
        "DROP INDEX event_one_terminal", ADD_EVENT.format("payment.expired"),
        "UPDATE event SET feed_position = 1"])),
    ("event_feed_last",
        "INSERT INTO event_feed VALUES (:merchant_id, :payment_id, -1)"),
    ("delivery_state", "UPDATE delivery SET state = 'lost'"),
    ("checkout_pkey", "INSERT INTO checkout SELECT * FROM checkout"),
    ("idempotency_pkey", "INSERT INTO idempotency SELECT * FROM idempotency"),
    ("callback_pkey", ";".join(
        ["INSERT INTO callback (account_id, callback_id, body) VALUES (:account_id, 'one', '')"] * 2
    )),
    ("merchant_locale", MERCHANT.format("locale = 'x'")),
    ("merchant_activation", MERCHANT.format("activation = 'LIVE'")),
    ("merchant_activated", MERCHANT.format("activated_at = NULL")),
    *(
        ("merchant_requested", MERCHANT.format(f"activation = 'REQUESTED', contract = {contract}, "
            f"kyc = {kyc}, requested_countries = {countries}, requested_currencies = {currencies}"))
        for contract, kyc, countries, currencies in (
            ("''", "'kyc'", "'{TH}'", "'{THB}'"),
            ("'contract'", "''", "'{TH}'", "'{THB}'"),
            ("'contract'", "'kyc'", "'{}'", "'{THB}'"),
            ("'contract'", "'kyc'", "'{TH}'", "'{}'"),
            ("'contract'", "'kyc'", "NULL", "'{THB}'"),
            ("'contract'", "'kyc'", "'{TH}'", "NULL"),
        )
    ),
    ("provider_wire_name", "UPDATE provider SET wire_name = 'No Name'"),
    ("provider_account_provider", "UPDATE provider_account SET provider = 'nobody'"),
    ("provider_account_countries", "UPDATE provider_account SET countries = '{}'"),
    ("restriction_type", "UPDATE restriction SET type = 'CARD'"),
    ("test_clock_livemode", "INSERT INTO test_clock VALUES (:merchant_id, true, 0)"),
    ("test_clock_mode", "INSERT INTO test_clock VALUES (:merchant_id, false, 0)"),
    ("test_clock_advanced", "INSERT INTO test_clock VALUES (:merchant_id, false, -1)"),
    ("provider_account_test_gateway",
     "INSERT INTO provider_account (provider, base_url) VALUES ('test', '')"),
    ("test_session_livemode", ADD_TEST_SESSION.format("livemode = true")),
    ("test_session_mode", ADD_TEST_SESSION.format("account_id = 0")),
    ("test_session_amount", ADD_TEST_SESSION.format("amount_minor = 0")),
    ("test_session_status", ADD_TEST_SESSION.format("status = 'lost'")),
    ("test_session_paid", ADD_TEST_SESSION.format("status = 'paid', captured_minor = 1")),
    ("test_session_dispute", ADD_TEST_SESSION.format("dispute = 'open'")),
    ("test_transfer_amount", ADD_TEST_TRANSFER.format("amount = 0")),
    ("provider_account_test_deposits",
        "UPDATE provider_account SET provider = 'test_onchain' WHERE livemode"),
    ("payment_method_test_chain", METHOD.format("chain = 'test'")),
    ("chain_contract_test_chain", f"{CONTRACT}; UPDATE chain_contract SET chain = 'test'"),
    ("chain_cursor_test_chain", "INSERT INTO chain_cursor (chain, block) VALUES ('test', 0)"),
    ("test_refund_session", ADD_TEST_REFUND.format("session_id = gen_random_uuid()")),
    ("test_refund_amount", ADD_TEST_REFUND.format("amount_minor = 0")),
    ("test_refund_state", ADD_TEST_REFUND.format("state = 'lost'")),
    ("merchant_test_side", MERCHANT.format("livemode = false")),
    ("merchant_live_merchant", (f"{TEST_SIDE}; UPDATE merchant SET live_merchant = 0 WHERE NOT "
         "livemode")),
    ("merchant_one_test_side", f"{TEST_SIDE}; {TEST_SIDE}"),
    ("merchant_mode", f"ALTER TABLE merchant DROP CONSTRAINT merchant_pkey CASCADE; {SAME_ID}"),
    ("api_key_mode", "UPDATE api_key SET livemode = false"),
    ("provider_account_one_mode", ("ALTER TABLE provider_account DROP CONSTRAINT "
         "provider_account_pkey CASCADE; INSERT INTO provider_account OVERRIDING SYSTEM VALUE "
         "SELECT * FROM provider_account")),
    ("provider_account_mode", ("INSERT INTO provider_account (provider, base_url, merchant_id, "
         "livemode) VALUES ('fake', '', :merchant_id, false)")),
    ("payment_method_merchant_mode", ("ALTER TABLE payment_method DROP CONSTRAINT "
         "payment_method_account_mode; UPDATE payment_method SET livemode = false")),
    ("payment_method_account_mode", (f"{TEST_SIDE}; UPDATE payment_method SET livemode = false, "
         "merchant_id = (SELECT id FROM merchant WHERE NOT livemode)")),
    ("merchant_tax_country", "UPDATE merchant SET tax_country = 'buyer'"),
    (
        "merchant_callback_https",
        MERCHANT.format("callback_url = 'HTTP://shop.test', allow_http = false"),
    ),
    ("catalog_shown_viewer", "INSERT INTO catalog_shown VALUES (1, 'de', '', clock())"),
    ("restriction_country", "UPDATE restriction SET country = 'kr'"),
    ("fraud_rule_kind", SET_RULE.format("kind = 'MOOD'")),
    ("fraud_rule_code", SET_RULE.format("code = 'code'")),
    ("fraud_rule_level", SET_RULE.format("level = 'SOME'")),
    ("fraud_rule_score", SET_RULE.format("score = 101")),
    ("fraud_rule_score", SET_RULE.format("score = -1")),
    ("fraud_rule_shape", SET_RULE.format("value = NULL")),
    ("fraud_rule_shape", SET_RULE.format("count_max = 1")),
    ("fraud_rule_shape", SET_RULE.format("window_s = 1")),
    ("fraud_rule_shape", ADD_RULE.format("'PAYER_VELOCITY'", "'buyer'", "1", "1")),
    ("fraud_rule_shape", ADD_RULE.format("'ADDRESS_VELOCITY'", "NULL", "1", "NULL")),
    ("fraud_rule_count_max", ADD_RULE.format("'PAYER_VELOCITY'", "NULL", "0", "1")),
    ("fraud_rule_window_s", ADD_RULE.format("'PAYER_VELOCITY'", "NULL", "1", "0")),
    ("fraud_rule_window_s", ADD_RULE.format("'PAYER_VELOCITY'", "NULL", "1", "2592001")),
    ("fraud_decision_once", SET_RULE.format("score = 1") + f"; {ADD_DECISION}; {ADD_DECISION}"),
    ("idempotency_outcome", "UPDATE idempotency SET payment_id = NULL"),
    ("idempotency_outcome", "UPDATE idempotency SET denial = '{}'"),
    ("rate_limit_class", ADD_LIMIT.format("'refund', 1, 1")),
    ("rate_limit_per_s", ADD_LIMIT.format("'create', 0, 1")),
    ("rate_limit_per_s", ADD_LIMIT.format("'create', 1000001, 1")),
    ("rate_limit_burst", ADD_LIMIT.format("'create', 1, 0")),
    ("rate_limit_burst", ADD_LIMIT.format("'create', 1, 10000001")),
    ("chain_finality", "UPDATE chain SET finality = 'soon'"),
    ("chain_confirmations", "UPDATE chain SET confirmations = 0"),
    ("chain_confirmations", "UPDATE chain SET confirmations = 10001"),
    ("chain_wallet_symbol", "UPDATE chain SET wallet_symbol = ''"),
    ("chain_wallet_symbol", "UPDATE chain SET wallet_symbol = 'NATIVED'"),
    ("chain_token_address", r"UPDATE chain_token SET address = '\x01'"),
    ("chain_token_decimals", "UPDATE chain_token SET decimals = -1"),
    ("chain_token_decimals", "UPDATE chain_token SET decimals = 19"),
    ("chain_token_minimum", "UPDATE chain_token SET minimum = 0"),
    ("chain_token_auto_refund_from", "UPDATE chain_token SET auto_refund_from = -1"),
    ("chain_auto_refund_gas", "UPDATE chain SET auto_refund_gas = -1"),
    ("chain_cursor_watched", f"{CONTRACT}; {WATCHED}"),
    ("chain_contract_address", ADD_CONTRACT.format("''", ADDRESS, 0)),
    ("chain_contract_receiver", ADD_CONTRACT.format(ADDRESS, "''", 0)),
    ("chain_contract_block", ADD_CONTRACT.format(ADDRESS, ADDRESS, -1)),
    ("chain_contract_once", f"{CONTRACT}; {ADD_SAME_CONTRACT}"),
    ("chain_receipt_disposition",
        f"{CONTRACT}; {ADD_RECEIPT.format(0, ':session_id', quoted('gift'))}"),
    *(
        ("chain_receipt_known", f"{CONTRACT}; {ADD_RECEIPT.format(0, 'NULL', quoted(disposition))}")
        for disposition in (
            *("credited", "duplicate", "underpaid", "overpaid", "wrong_token", "late"),
            "closed_session",
        )
    ),
    ("chain_receipt_once", ";".join(
        [CONTRACT, *[ADD_RECEIPT.format(0, "NULL", quoted("unknown_uuid"))] * 2]
    )),
    ("chain_receipt_one_credit", ";".join(
        [CONTRACT, *(ADD_RECEIPT.format(log, ":session_id", quoted("credited")) for log in (0, 1))]
    )),
    ("chain_contract_forwarder", ADD_FACTORY.format("''", ":account_id")),
    ("chain_contract_factory", ADD_FACTORY.format(ADDRESS, "NULL")),
    ("chain_contract_refund_account", ADD_FACTORY.format(ADDRESS, "0")),
    ("deposit_address_uuid", FACTORY + ";" + ADD_DEPOSIT_ADDRESS.format("''", ADDRESS, 0)),
    ("deposit_address_address", FACTORY + ";" + ADD_DEPOSIT_ADDRESS.format(UUID_BYTES, "''", 0)),
    ("deposit_address_from_block",
        f"{FACTORY}; {ADD_DEPOSIT_ADDRESS.format(UUID_BYTES, ADDRESS, -1)}"),
    ("deposit_address_session", f"{FACTORY}; {DEPOSIT_ADDRESS}; {DEPOSIT_ADDRESS}"),
    ("deposit_address_once", (
        f"{FACTORY}; ALTER TABLE deposit_address DROP CONSTRAINT deposit_address_session; "
        f"{DEPOSIT_ADDRESS}; {DEPOSIT_ADDRESS}"
    )),
    ("chain_receipt_deposit",
        f"{FACTORY}; {ADD_RECEIPT.format(0, ':session_id', quoted('deposit'))}"),
    ("chain_receipt_deposit_capture", (
        f"{FACTORY}; {DEPOSIT}; UPDATE chain_receipt SET deposit_capture_id = gen_random_uuid()"
    )),
    ("chain_sighting_deposit", ADD_SIGHTING.format(f"{ADDRESS}, NULL")),
    ("chain_token_surplus_from", "UPDATE chain_token SET surplus_from = -1"),
    ("merchant_deposit_tolerance", MERCHANT.format("deposit_tolerance = 1.1")),
    ("refund_of_deposit", f"{FACTORY}; {refund()}"),
    ("refund_address_entries",
        refund().replace("approved_by)", "approved_by, address_entries)").replace(
            "NULL\n    FROM", "NULL, 3\n    FROM")),
    ("chain_hint_tx_hash", ADD_HINT.format("'', 'pay', 'unknown'")),
    ("chain_hint_step", ADD_HINT.format(f"{HASH}, 'sign', 'unknown'")),
    ("chain_hint_state", ADD_HINT.format(f"{HASH}, 'pay', 'lost'")),
    ("session_pay_uuid", ";".join([ADD_ONCHAIN_SESSION] * 2)),
    ("audit_who", ADD_LINE.format("''")),
    ("capture_owned", ";".join([
        CONTRACT, ADD_RECEIPT.format(0, "NULL", quoted("unknown_uuid")),
        CAPTURE.format("session_id = NULL, receipt_id = (SELECT id FROM chain_receipt)")
    ])),
    ("capture_owned", CAPTURE.format("payment_id = NULL")),
    ("capture_known", CAPTURE.format("session_id = NULL, payment_id = NULL")),
    ("capture_callback", CAPTURE.format("callback_id = 'nobody'")),
    ("capture_of_receipt", ";".join([
        CONTRACT, ADD_RECEIPT.format(0, "NULL", quoted("unknown_uuid")), ADD_SAME_RECEIPT_CAPTURE
    ])),
    ("payment_reserved", PAYMENT.format("reserved_amount = -0.01")),
    ("payment_remainder", PAYMENT.format("reserved_amount = amount + 0.01")),
    ("payment_remainder", PAYMENT.format(
        "status = 'PARTIALLY_REFUNDED', refunded_amount = 1, reserved_amount = amount"
    )),
    ("payment_refund_state", PAYMENT.format("refunded_amount = 1")),
    ("payment_refund_state", PAYMENT.format("status = 'REFUNDED', refunded_amount = amount - 1")),
    ("payment_refund_state", PAYMENT.format("status = 'PARTIALLY_REFUNDED'")),
    ("payment_refund_state",
        PAYMENT.format("status = 'PARTIALLY_REFUNDED', refunded_amount = amount")),
    ("payment_reserved_state", "ALTER TABLE payment DISABLE TRIGGER payment_arrow; "
        + PAYMENT.format("status = 'PROCESSING', paid_at = NULL, reserved_amount = 1")),
    ("refund_amount", refund(amount="0")),
    ("refund_amount_minor", refund(amount_minor="0")),
    ("refund_reason", refund(reason="''")),
    ("refund_reason", refund(reason="repeat('x', 501)")),
    ("refund_status", refund(status="'LOST'", step="'ended'")),
    ("refund_failure_reason",
        refund(status="'FAILED'", step="'ended'", failure_reason="'MOOD'")),
    ("refund_step", refund(step="'lost'")),
    ("refund_ended", refund(step="'ended'")),
    ("refund_ended", refund(status="'SUCCEEDED'")),
    ("refund_failed", refund(status="'FAILED'", step="'ended'")),
    ("refund_failed", refund(failure_reason="'DECLINED'")),
    ("refund_owner", refund(amount="NULL")),
    ("refund_owner", refund(amount_text="NULL")),
    ("refund_owner", refund(payment_id="NULL")),
    ("refund_owner", refund(merchant_id="NULL")),
    ("refund_case_id_fkey", refund(OF_CASE, case_id="gen_random_uuid()")),
    ("refund_owner", refund(OF_CASE, amount="1", amount_text="'1'")),
    ("refund_two_persons", refund(approved_by="'ann'")),
    ("refund_one_of_case", ";".join(["DELETE FROM refund", *[refund(OF_CASE)] * 2])),
    *(
        ("refund_frozen", f"{refund()}; UPDATE refund SET {column} = {column}")
        for column in (
            *("merchant_id", "payment_id", "capture_id", "case_id", "amount", "amount_text"),
            *("currency", "amount_minor", "reason", "destination", "requested_by", "created_at"),
        )
    ),
    ("money_case_subject", "UPDATE money_case SET subject = ''"),
    ("money_case_subject", "UPDATE money_case SET subject = repeat('x', 301)"),
    ("gateway_outage_channel", ADD_OUTAGE.format("'callbacks'")),
    ("endpoint_outage_trips", ADD_ENDPOINT_OUTAGE.format(":merchant_id", 0)),
    ("endpoint_outage_merchant_id_fkey", ADD_ENDPOINT_OUTAGE.format(0, 1)),
    ("endpoint_outage_pkey", ";".join([ADD_ENDPOINT_OUTAGE.format(":merchant_id", 1)] * 2)),
    ("gateway_outage_pkey", ";".join([ADD_OUTAGE.format("'refunds'")] * 2)),
    ("chain_refund_approval", "UPDATE chain SET refund_approval_above = -1"),
    ("chain_refund_disposition",
        f"{CONTRACT}; {ADD_CHAIN_REFUND.format(0, quoted('gift'), 'NULL')}"),
    ("chain_refund_settled",
        f"{CONTRACT}; {ADD_CHAIN_REFUND.format(0, quoted('settles'), 'NULL')}"),
    *(
        ("chain_refund_settled",
            f"{CONTRACT}; {refund()}; {ADD_CHAIN_REFUND.format(0, disposition, THE_REFUND)}")
        for disposition in ("NULL", "'unknown'", "'foreign'", "'mismatched'", "'twice'")
    ),
    ("chain_refund_once", ";".join([CONTRACT, *[ADD_CHAIN_REFUND.format(0, "NULL", "NULL")] * 2])),
    ("chain_refund_settles", ";".join([CONTRACT, refund(),
        *(ADD_CHAIN_REFUND.format(log, quoted("settles"), THE_REFUND) for log in (0, 1))])),
    ("chain_refund_try_sender",
        "INSERT INTO chain_refund_try (refund_id, sender) VALUES (gen_random_uuid(), '')"),
    *(
        ("session_quote_frozen", SESSION.format(f"{column} = {column}"))
        for column in ("token_address", "token_decimals", "token_zero_first")
    ),
    ("mail_kind", ADD_MAIL.format("'news'", "NULL", "''", 0)),
    ("mail_attempts", ADD_MAIL.format("'invitation'", "NULL", "''", -1)),
    ("mail_content", ADD_MAIL.format("'invitation'", "NULL", "NULL", 0)),
    ("mail_content", ADD_MAIL.format("'invitation'", ":payment_id", "''", 0)),
    ("mail_content", ADD_MAIL.format("'receipt'", "NULL", "NULL", 0)),
    ("mail_content", ADD_MAIL.format("'receipt'", ":payment_id", "''", 0)),
    ("mail_content", ADD_REFUND_MAIL.format("'refund_address'", "NULL", "NULL")),
    ("mail_content", ADD_REFUND_MAIL.format("'refund_address'", "gen_random_uuid()", "''")),
    ("mail_content", ADD_REFUND_MAIL.format("'invitation'", "gen_random_uuid()", "''")),
    ("mail_refund", ADD_REFUND_MAIL.format("'refund_address'", "gen_random_uuid()", "NULL")),
    ("mail_receipt_once", ";".join([
        ADD_MAIL.format("'receipt'", ":payment_id", "NULL", 0)] * 2)),
    ("gateway_call_request", ADD_GATEWAY_CALL.format("'steal', :session_id, 'unknown', ''")),
    ("gateway_call_outcome", ADD_GATEWAY_CALL.format("'inquire', :session_id, 'x', ''")),
    ("gateway_call_detail",
        ADD_GATEWAY_CALL.format("'inquire', :session_id, 'unknown', repeat('x', 301)")),
    ("gateway_call_subject", ADD_GATEWAY_CALL.format("'inquire', NULL, 'unknown', ''")),
    ("member_email", ADD_MEMBER.format("'ab'", "'finance'", "'ann'")),
    ("member_role", ADD_MEMBER.format("'a@b.test'", "'admin'", "'ann'")),
    ("member_invited_by", ADD_MEMBER.format("'a@b.test'", "'finance'", "''")),
    ("member_email_once", A_MEMBER + ADD_MEMBER.format("'A@B.test'", "'finance'", "'ann'")),
    ("member_link_digest", A_MEMBER + "INSERT INTO member_link (member_id, digest, expires_at) "
        "SELECT id, '', clock() FROM member"),
    ("member_session_digest", A_MEMBER + "INSERT INTO member_session (id, member_id, digest, "
        "expires_at) SELECT id, id, '', clock() FROM member"),
    ("member_passkey_credential", ADD_PASSKEY.format("''", "'k'", 0)),
    ("member_passkey_public_key", ADD_PASSKEY.format("'c'", "''", 0)),
    ("member_passkey_sign_count", ADD_PASSKEY.format("'c'", "'k'", -1)),
    ("operator_token_role", ADD_TOKEN.format("'12345678'", "'x'", "sha256('')")
        + "; UPDATE operator_token SET role = 'x'"),
    ("operator_token_no_identity",
        ADD_TOKEN.format("'12345678'", "'OIDC:x'", "sha256('')")),
    ("operator_identity_issuer", ADD_IDENTITY.format("''", "'u'", "'oidc:x'", "'viewer'")),
    ("operator_identity_subject", ADD_IDENTITY.format("'i'", "''", "'oidc:x'", "'viewer'")),
    ("operator_identity_name", ADD_IDENTITY.format("'i'", "'u'", "'ann'", "'viewer'")),
    ("operator_identity_role", ADD_IDENTITY.format("'i'", "'u'", "'oidc:x'", "'x'")),
    ("operator_identity_person", ";".join(
        ADD_IDENTITY.format("'i'", "'u'", f"'oidc:{name}'", "'viewer'") for name in "xy")),
    ("operator_identity_name_once", ";".join(
        ADD_IDENTITY.format("'i'", f"'{name}'", f"'oidc:{name}'", "'viewer'") for name in "xX")),
    ("completed_sign_in_digest",
        "INSERT INTO completed_sign_in (digest, expires_at) VALUES ('', clock())"),
    ("console_session_holder", ADD_CONSOLE_SESSION),
    ("operator_token_name_once", ";".join(
        ADD_TOKEN.format(f"'1234567{name}'", f"'{name}nn'", "sha256('')") for name in "aA")),
    ("proposal_changes", ADD_PROPOSAL.format("changes = '{}'")),
    ("proposal_proposed_by", ADD_PROPOSAL.format("proposed_by = ''")),
    ("proposal_status", ADD_PROPOSAL.format(DECIDED.format("'bob'", "NULL, status = 'GONE'")
        .replace("status = 'APPROVED', ", ""))),
    ("proposal_decided", ADD_PROPOSAL.format("status = 'REJECTED'")),
    ("proposal_decided", ADD_PROPOSAL.format("decided_by = 'bob'")),
    ("proposal_decided", ADD_PROPOSAL.format(DECIDED.format("'bob'", "sealed"))),
    ("proposal_two_people", ADD_PROPOSAL.format(DECIDED.format("'ann'", "NULL"))),
    ("dispute_reference", dispute(reference="''")),
    ("dispute_reference", dispute(reference="repeat('x', 301)")),
    ("dispute_state", dispute(state="'lost for now'")),
    ("dispute_funds", dispute(funds="'gone'")),
    ("dispute_amount", dispute(amount_minor="-1")),
    ("dispute_held", dispute(held_minor="-1")),
    ("dispute_reason", dispute(reason="repeat('x', 301)")),
    ("dispute_once", ";".join([
        ADD_CASE.format("'RECONCILIATION'", "NULL", "'OPEN'"), dispute(), dispute(kind="=")
    ])),
    ("dispute_case_id_key", ";".join([dispute(), dispute(reference="'du_2'")])),
    ("capture_disputed_minor", CAPTURE.format("disputed_minor = -1")),
    ("capture_disputed", CAPTURE.format("disputed_minor = amount_minor") + "; "
        + CAPTURE.format("reserved_minor = 1")),
    ("audit_append_only", "UPDATE audit SET why = ''"),
    ("audit_append_only", "DELETE FROM audit"),
    ("audit_append_only", "TRUNCATE audit"),
    ("ledger_append_only", "UPDATE ledger_entry SET amount = 1"),
    ("ledger_append_only", "DELETE FROM ledger_entry"),
    ("ledger_append_only", "TRUNCATE ledger_entry"),
    ("ledger_entry_fact", ADD_ENTRY.format("'gift', 'fee_income', 'bank', 1")),
    ("ledger_entry_amount", ADD_ENTRY.format("'capture', 'fee_income', 'bank', 0")),
    ("ledger_entry_amount", ADD_ENTRY.format("'capture', 'fee_income', 'bank', -1")),
    ("ledger_entry_accounts", ADD_ENTRY.format("'capture', 'bank', 'bank', 1")),
    ("ledger_entry_debit", ADD_ENTRY.format("'capture', 'purse:1', 'bank', 1")),
    ("ledger_entry_credit", ADD_ENTRY.format("'capture', 'bank', 'purse:1', 1")),
    ("ledger_entry_pkey", ";".join(
        ADD_ENTRY.format(f"'capture', 'fee_income', 'bank', {amount}") for amount in (1, 2))),
    ("payout_within_payable", ADD_PAYOUT.format("1, 'transfer'")),
    ("payout_within_payable", OWED + ";" + ADD_PAYOUT.format("101, 'transfer'")),
    ("payout_within_payable", f"{PAYOUT};" + ADD_OWED.format(
        "'payout', 'merchant_payable:' || :merchant_id, 'bank', 10") + ";"
        + ADD_PAYOUT.format("91, 'another'")),
    ("payout_amount", ADD_PAYOUT.format("0, 'transfer'")),
    ("payout_amount", ADD_PAYOUT.format("-1, 'transfer'")),
    ("payout_reference", OWED + ";" + ADD_PAYOUT.format("1, ''")),
    ("payout_reference", OWED + ";" + ADD_PAYOUT.format("1, repeat('x', 201)")),
    ("payout_once", PAYOUT + ";" + ADD_PAYOUT.format("1, 'transfer'")),
    ("payout_reversal", f"{PAYOUT};UPDATE payout SET reversed_at = now()"),
    ("payout_stands", f"{PAYOUT};UPDATE payout SET amount_minor = 1"),
    ("payout_stands", f"{PAYOUT};{REVERSE}, reference = 'another'"),
    ("payout_stands", f"{PAYOUT};{REVERSE};UPDATE payout SET reversed_at = NULL"),
    ("payout_stands", f"{PAYOUT};DELETE FROM payout"),
    ("gateway_payout_amount", ADD_GATEWAY_PAYOUT.format("0, 0, 'po_1'")),
    ("gateway_payout_reference", ADD_GATEWAY_PAYOUT.format("1, 0, ''")),
    ("gateway_payout_reference", ADD_GATEWAY_PAYOUT.format("1, 0, repeat('x', 201)")),
    ("gateway_payout_once", GATEWAY_PAYOUT + ";" + ADD_GATEWAY_PAYOUT.format("-9, 0, 'po_1'")),
    *[("gateway_payout_stands", f"{GATEWAY_PAYOUT};{change}") for change in (
        "UPDATE gateway_payout SET amount_minor = 1",
        REVERSE.replace("payout", "gateway_payout") + ", fee_minor = 0",
        REVERSE.replace("payout", "gateway_payout")
        + ";UPDATE gateway_payout SET reversed_at = NULL",
        "DELETE FROM gateway_payout",
    )],
    ("gateway_payout_reversal",
        f"{GATEWAY_PAYOUT};UPDATE gateway_payout SET reversed_at = now()"),
    ("reconciliation_run_source", ADD_RUN.replace("'folder'", "'mail'")),
    ("reconciliation_run_status", ADD_RUN.replace("'failed'", "'odd'").replace("'no'", "''")),
    ("reconciliation_run_once", ADD_RUN + ";" + ADD_RUN),
    ("reconciliation_run_ended", ADD_RUN.replace("now())", "NULL)")),
    ("reconciliation_run_problem", ADD_RUN.replace("'no'", "''")),
    ("reconciliation_sum_type", ADD_RUN + """;
        INSERT INTO reconciliation_sum (run_id, type, currency, lines, records, gateway, service,
            ledger, merchants)
        SELECT id, 'gift', 'USD', 0, 0, 0, 0, 0, 0 FROM reconciliation_run"""),
    ("reconciliation_blocks_order", ADD_RUN + """;
        INSERT INTO reconciliation_blocks (run_id, account_id, first_block, last_block, next_block)
        SELECT id, account_id, 5, 9, 11 FROM reconciliation_run"""),
    ("chain_sweeper", "UPDATE chain SET sweeper = '\\x00'"),
    ("chain_sweep_policy", "UPDATE chain SET sweep_count = 0"),
    ("chain_sweep_policy", "UPDATE chain SET sweep_after_s = -1"),
    ("chain_sweep_policy", "UPDATE chain SET sweep_gas_price_max = -1"),
    ("chain_transfer_fee", "UPDATE chain SET transfer_fee_usd = -1"),
    ("chain_token_sweep", "UPDATE chain_token SET sweep_value = -1"),
    ("chain_token_sweep", "UPDATE chain_token SET sweep_minimum = -1"),
    *[(constraint, ";".join([
        CONTRACT,
        ADD_RECEIPT.format(0, ":session_id", quoted("late")),
        "UPDATE chain_receipt SET deposit_sweep_id = gen_random_uuid()" + more,
    ])) for constraint, more in (
        ("chain_receipt_sweep", ""),
        ("chain_receipt_deposit_sweep", ", disposition = 'deposit', mined_at = clock()"),
    )],
    ("deposit_sweep_uuid", add_sweep(uuid_bytes=15)),
    ("deposit_sweep_token", add_sweep(token_bytes=19)),
    ("deposit_sweep_amount", add_sweep(amount=0)),
    ("deposit_sweep_amount", add_sweep(succeeded=False)),
    ("deposit_sweep_amount", add_sweep(received=6)),
    ("deposit_sweep_amount", add_sweep(received=-1)),
    ("deposit_sweep_log", add_sweep(count=2)),
    ("sweep_batch_token", ADD_BATCH.format(token=19, sender=20, hash=32, result="'mined'", gas=1)),
    ("sweep_batch_sender", ADD_BATCH.format(token=20, sender=19, hash=32, result="'mined'", gas=1)),
    ("sweep_batch_tx_hash",
        ADD_BATCH.format(token=20, sender=20, hash=31, result="'mined'", gas=1)),
    ("sweep_batch_result", ADD_BATCH.format(token=20, sender=20, hash=32, result="'x'", gas=1)),
    ("sweep_batch_gas_cost",
        ADD_BATCH.format(token=20, sender=20, hash=32, result="'mined'", gas=0)),
    ("sweep_batch_end", ADD_BATCH.format(token=20, sender=20, hash=32, result="NULL", gas=1)),
    ("sweep_item_claim", """
        INSERT INTO sweep_item (batch_id, session_id, token)
        SELECT gen_random_uuid(), '00000000-0000-0000-0000-000000000001', '\\x00'
        FROM generate_series(1, 2)"""),
    ("merchant_time_zone", "UPDATE merchant SET time_zone = ''"),
    ("statement_number", ADD_STATEMENT.format(number=0, day=1, opening=0, closing=5)),
    ("statement_sum", ADD_STATEMENT.format(number=1, day=1, opening=0, closing=6)),
    ("statement_follows", ADD_STATEMENT.format(number=1, day=1, opening=1, closing=6)),
    ("statement_follows", ADD_STATEMENT.format(number=2, day=1, opening=0, closing=5)),
    ("statement_follows", STATEMENT + ADD_STATEMENT.format(
        number=2, day=2, opening=4, closing=9)),
    ("statement_follows", STATEMENT + ADD_STATEMENT.format(
        number=2, day=1, opening=5, closing=10)),
    ("statement_order", STATEMENT + ADD_STATEMENT.format(number=1, day=2, opening=0, closing=5)),
    ("statement_frozen", STATEMENT + "UPDATE statement SET day = day"),
    ("statement_frozen", STATEMENT + "DELETE FROM statement"),
    ("statement_frozen", "TRUNCATE statement"),
    *[("statement_close_forward", STATEMENT_CLOSE + change) for change in (
        "UPDATE statement_close SET day = day - 1",
        "UPDATE statement_close SET closed_at = closed_at - interval '1 day'",
        "UPDATE statement_close SET closed_number = 4",
        "UPDATE statement_close SET next_number = 5",
        "DELETE FROM statement_close",
    )],
    ("merchant_callback_by_member", MERCHANT.format("callback_by_member = true")),
    ("audit_member_change", """
        INSERT INTO audit (id, who, why, action, details, merchant_id)
        VALUES (gen_random_uuid(), 'merchant:1:ann@shop.example', 'logo', 'merchant.profile', '{}',
            :merchant_id)"""),
    *[("payment_link_" + constraint, add_link(**changes)) for constraint, changes in (
        ("token", {"token": "'lnk_short'"}),
        ("title", {"title": "''"}),
        ("description", {"description": "''"}),
        ("order_id", {"order_id": "''"}),
        ("max_uses", {"max_uses": 10_001}),
        ("return_url", {"return_url": "'javascript:alert(1)'"}),
        ("cancel_url", {"cancel_url": "'https://shop.example/a b'"}),
        ("created_by", {"created_by": "''"}),
        ("expires_at", {"expires_at": "'infinity'"}),
        ("amount", {"amount": 5}),
        ("amount", {"amount": 5, "amount_text": "'5'", "amount_max": 6}),
        ("range", {"amount_min": 2, "amount_max": 1}),
        ("range", {"amount_min": 0}),
        ("deactivated", {"deactivated_at": "clock()"}),
        ("deactivated", {"deactivated_at": "clock()", "deactivated_by": "''"}),
    )],
    ("payment_link_token_once", add_link() + add_link(id="gen_random_uuid()")),
    ("payment_link_key_once", "".join(
        add_link(id="gen_random_uuid()", key=_LINK_ID, token=quoted("lnk_" + letter * 22))
        for letter in "ab"
    )),
    ("payment_link_frozen", add_link() + "UPDATE payment_link SET title = 'A pen'"),
    ("payment_link_use_slot", add_link() + add_link_use(slot=3)),
    ("payment_link_use_link", add_link() + add_link_use(slots=3)),
    ("payment_link_use_payment", add_link() + add_link_use() + add_link_use(slot=2)),
    ("payment_link_use_allowed", add_link(currency="'XXX'") + add_link_use()),
]  # fmt: skip


async def test_raw_sql_cannot_violate_any_invariant(scene: Scene) -> None:
    results = [
        (constraint, await scene.get_violation(query), query) for constraint, query in VIOLATIONS
    ]
    assert [item for item in results if item[0] != item[1]] == []


def test_every_constraint_named_in_a_migration_is_tested() -> None:
    constraints = set(re.findall(r"CONSTRAINT (\w+)\s+(?:CHECK|UNIQUE|FOREIGN)", MIGRATIONS))
    constraints |= set(
        re.findall(r"CREATE UNIQUE INDEX (?:CONCURRENTLY IF NOT EXISTS )?(\w+)", MIGRATIONS)
    )
    constraints |= set(re.findall(r"CREATE TRIGGER (\w+)", MIGRATIONS))
    constraints -= set(re.findall(r"DROP INDEX CONCURRENTLY IF EXISTS (\w+)", MIGRATIONS))
    assert len(constraints) > 50
    assert (
        constraints - {constraint for constraint, _ in VIOLATIONS}
        == RECORDING | SHARING_NAME | IMPLIED
    )


async def test_metadata_is_stored_byte_for_byte(world: World) -> None:
    metadata = '{"b": 1.0, "a":[1e2,  "\\u00e9é"],"b":0.10}'
    payment = await world.create(metadata=metadata)
    assert (await world.read(payment)).payment.metadata == metadata


async def test_an_event_without_a_callback_url_is_stored_and_its_delivery_is_skipped(
    world: World,
) -> None:
    payment = await world.create()
    selected = await world.select(payment)
    await world.report(payment, selected.session.id, captured(159000))
    [delivery] = await world.rows("SELECT state FROM delivery")
    assert delivery["state"] == "skipped"


async def test_the_database_clock_has_millisecond_precision_and_can_be_advanced(
    world: World,
) -> None:
    [before] = await world.rows("SELECT clock() AS now")
    await world.move_clock(3600)
    [after] = await world.rows("SELECT clock() AS now, clock() AS again")
    assert 3600 <= (after["now"] - before["now"]).total_seconds() < 3660
    assert after["now"] == after["again"]
    assert after["now"].microsecond % 1000 == 0
