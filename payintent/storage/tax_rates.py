"""The operator's tax rates by country."""

from collections.abc import Mapping
from decimal import Decimal

from payintent.storage.database import Executor, Tx


async def list_tax_rates(database: Executor) -> Mapping[str, Decimal]:
    rows = await database.fetch("SELECT country, rate FROM tax_rate ORDER BY country LIMIT 300")
    return {row["country"]: row["rate"] for row in rows}


async def set_tax_rate(tx: Tx, country: str, rate: Decimal) -> None:
    await tx.fetch(
        """
        INSERT INTO tax_rate (country, rate)
        VALUES ($1, $2)
        ON CONFLICT (country) DO UPDATE
        SET rate = excluded.rate
        """,
        country,
        rate,
    )


async def remove_tax_rate(tx: Tx, country: str) -> bool:
    """Remove a country's tax rate; return False if it had none."""
    row = await tx.row("DELETE FROM tax_rate WHERE country = $1 RETURNING country", country)
    return row is not None
