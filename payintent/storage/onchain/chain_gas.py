"""The gas that automatic refunds use per chain and day (UTC)."""

from payintent.storage.database import Executor

_TODAY = "(SELECT (clock() AT TIME ZONE 'UTC')::date AS today) t"
_USED = "CASE WHEN k.auto_refund_day = t.today THEN k.auto_refund_gas_used ELSE 0 END"


async def spend(database: Executor, chain: str, gas: int) -> bool:
    """Count gas as used; False if the day has less left, and then nothing is counted."""
    row = await database.row(
        f"""
        UPDATE chain_cursor k
        SET auto_refund_day = t.today, auto_refund_gas_used = $2 + {_USED}
        FROM chain h CROSS JOIN {_TODAY}
        WHERE k.chain = $1 AND h.slug = k.chain AND $2 + {_USED} <= h.auto_refund_gas
        RETURNING k.chain
        """,
        chain,
        gas,
    )
    return row is not None


async def list_left(database: Executor) -> dict[str, int | None]:
    """Return the remaining gas of the day by chain; None if automatic refunds are off."""
    rows = await database.fetch(
        f"""
        SELECT k.chain,
            CASE WHEN h.auto_refund_gas > 0 THEN greatest(0, h.auto_refund_gas - {_USED}) END
                AS gas_left
        FROM chain_cursor k
        JOIN chain h ON h.slug = k.chain
        CROSS JOIN {_TODAY}
        ORDER BY k.chain
        LIMIT 100
        """
    )
    return {row["chain"]: row["gas_left"] for row in rows}
