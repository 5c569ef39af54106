"""Create data that the portal shows only after some days."""

from payintent.accounting.close_statements import close_due_days
from payintent.core import ids
from tests.support.world import World

_INSERT_ADJUSTMENTS = """
    INSERT INTO ledger_entry (fact_id, leg, merchant_id, currency, fact, debit, credit, amount,
        created_at)
    SELECT gen_random_uuid(), 'whole', $1::bigint, 'THB', 'adjustment', 'bank',
        'merchant_payable:' || $1::bigint, $2, clock() - interval '2 days'
    FROM generate_series(1, $3)
"""


async def close_a_day(world: World, adjustments: int = 1) -> str:
    """Record adjustments two days ago, and close that day. Return the statement id."""
    await world.rows(_INSERT_ADJUSTMENTS, world.merchant_id, 1_234_567, adjustments)
    while await close_due_days(world.database):
        pass
    [row] = await world.rows(
        "SELECT id FROM statement WHERE merchant_id = $1 ORDER BY number DESC LIMIT 1",
        world.merchant_id,
    )
    return ids.format_id(ids.STATEMENT, row["id"])
