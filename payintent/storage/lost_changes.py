"""What control lacks of the copied tables after a restore, and cells still have (decision 127)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from payintent.storage import copied_tables
from payintent.storage.database import Executor, Tx

_MERCHANTS_MAX = 1_000_000
_NAMED_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownMerchant:
    """A merchant as a database knows it: the cells that it was placed in, and what is of it here.

    The moment of its creation tells it from another one that got its number after a restore.
    """

    created_at: datetime
    cells: frozenset[int]
    has_payments: bool


async def list_known_merchants(database: Executor) -> Mapping[int, KnownMerchant]:
    """List all merchants that a database knows, by their numbers."""
    rows = await database.fetch(
        """
        SELECT m.id, m.created_at,
            ARRAY(
                SELECT DISTINCT p.cell
                FROM merchant_cell AS p
                WHERE p.merchant_id = m.id
            ) AS cells,
            EXISTS (SELECT FROM payment AS p WHERE p.merchant_id = m.id) AS has_payments
        FROM merchant AS m
        ORDER BY m.id
        LIMIT $1
        """,
        _MERCHANTS_MAX,
    )
    return {
        row["id"]: KnownMerchant(
            created_at=row["created_at"],
            cells=frozenset(row["cells"]) or frozenset({0}),
            has_payments=row["has_payments"],
        )
        for row in rows
    }


async def find_lost(control: Executor, cell: Executor) -> list[str]:
    """List what a cell knows of merchants with payments, and control does not any more.

    Nothing, where the cell's copies are of a change of control's.
    """
    copy = await copied_tables.read_copy(cell)
    if copy.change is None or not await copied_tables.is_foreign(control, copy.change):
        return []
    of_control = await list_known_merchants(control)
    lost: list[str] = []
    for merchant_id, there in (await list_known_merchants(cell)).items():
        ours = of_control.get(merchant_id)
        if ours is None or ours.created_at != there.created_at:
            if there.has_payments:
                lost.append(f"merchant {merchant_id}")
        elif more := there.cells - ours.cells:
            cells = " and ".join(map(str, sorted(more)))
            lost.append(f"that merchant {merchant_id} is or was in cell {cells}")
    return lost


def name_some(lost: Sequence[str]) -> str:
    """Name what was lost, or the first of it."""
    more = f" and {len(lost) - _NAMED_MAX} more" if len(lost) > _NAMED_MAX else ""
    return ", ".join(lost[:_NAMED_MAX]) + more


async def was_changed_since(control: Executor, moment: datetime) -> bool:
    """Tell whether something that is copied was changed in control after a moment."""
    row = await control.row("SELECT changed_at > $1 AS is_later FROM configuration_version", moment)
    return bool(row and row["is_later"])


async def begin_taking_back(control: Tx) -> None:
    """Let `copied_tables` write into control's own tables, until the transaction ends."""
    await control.fetch("SELECT set_config('payintent.copied_by', 'take-back', true)")


async def pass_taken_numbers(control: Tx) -> None:
    """Let nothing new get a number that something that was taken back has."""
    await control.fetch(
        """
        SELECT
            setval('merchant_id_seq', (
                SELECT greatest(s.last_value, (SELECT max(id) FROM merchant))
                FROM merchant_id_seq AS s)),
            setval('provider_account_id_seq', (
                SELECT greatest(s.last_value, (SELECT max(id) FROM provider_account))
                FROM provider_account_id_seq AS s)),
            setval('payment_method_id_seq', (
                SELECT greatest(s.last_value, (SELECT max(id) FROM payment_method))
                FROM payment_method_id_seq AS s)),
            setval('fraud_rule_id_seq', (
                SELECT greatest(s.last_value, (SELECT max(id) FROM fraud_rule))
                FROM fraud_rule_id_seq AS s))
        """
    )
