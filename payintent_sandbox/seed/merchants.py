"""The merchants of a seeded history. The first has half of the payments, and the last has 1 %."""

from itertools import accumulate

from payintent.db.driver import Connection
from payintent.gateway_accounts.operations import AddAccount
from payintent.merchants.operations import CreateMerchant
from payintent.operators.operation import Actor
from payintent.service import Service

ACTOR = Actor("seed", "a payment history for measurements")
_PROVIDER = "simulator"
#: Each merchant's share of the payments, in percent. The last two merchants have no webhook URL,
#: and the URLs of the other merchants do not respond.
_SHARES = (50, 20, 12, 8, 5, 3, 1, 1)
_WITH_WEBHOOK = 6
_CARDS = """
    SELECT 1
    FROM payment_method m
    JOIN provider_account a ON a.id = m.account_id
    WHERE m.merchant_id = $1 AND m.kind = 'card' AND a.provider = $2
"""
_WRITE = """
    INSERT INTO seed_merchant
    SELECT $2, t.id, t.callback_url IS NOT NULL, t.callback_url, m.id, m.account_id, a.provider,
        p.wire_name, m.kind, m.label, m.fee_mode, m.fee_rate
    FROM merchant t
    JOIN payment_method m ON m.merchant_id = t.id
    JOIN provider_account a ON a.id = m.account_id
    JOIN provider p ON p.name = a.provider
    WHERE t.id = $1 AND m.kind = 'card' AND a.provider = $3
    ORDER BY m.position, m.id
    LIMIT 1
"""


async def prepare_merchants(service: Service, connection: Connection) -> None:
    """Create missing merchants, and write all of them to the `seed_merchant` table."""
    await _prepare_account(service, connection)
    for number, share_end in enumerate(accumulate(_SHARES), start=1):
        name = f"Seeded {number}"
        merchant_id = await connection.fetchval(
            "SELECT id FROM merchant WHERE name = $1 ORDER BY id LIMIT 1", name
        )
        if not await connection.fetchval(_CARDS, merchant_id, _PROVIDER):
            url = f"http://127.0.0.1:9/{number}" if number <= _WITH_WEBHOOK else None
            new = CreateMerchant(name=name, callback_url=url, methods="all")
            merchant_id = (await service.run_operation(new, ACTOR)).merchant.id
        await connection.execute(_WRITE, merchant_id, share_end, _PROVIDER)


async def _prepare_account(service: Service, connection: Connection) -> None:
    """Add a simulator account if the platform has none. Its URL is unreachable."""
    if await connection.fetchval(
        "SELECT 1 FROM provider_account WHERE provider = $1 AND merchant_id IS NULL", _PROVIDER
    ):
        return
    credentials = {"api_key": "simkey_seeded", "signing_secret": "simsecret_seeded"}
    new = AddAccount(provider=_PROVIDER, base_url="http://127.0.0.1:9", credentials=credentials)
    await service.run_operation(new, ACTOR)
