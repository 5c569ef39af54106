"""Checks whether statements add up to the balances, using independent formulas."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg

from payintent.accounting import statements_store as statement_store
from payintent.accounting.statements_store import Statement

_LINES = 5_000
_ALL = 100_000

#: The effect of each fact on a merchant's balance, from the ledger.
_OWED = """
SELECT e.currency, coalesce(e.chain, '') AS chain, e.fact, e.fact_id,
    sum(CASE e.credit WHEN $1 THEN e.amount ELSE -e.amount END) AS amount
FROM ledger_entry e
WHERE $1 IN (e.debit, e.credit)
GROUP BY 1, 2, 3, 4
"""

Key = tuple[str, str]  # a fact and the ID of its row


@dataclass(frozen=True, slots=True)
class Page:
    opening: int
    moved: int  # the sum of the movements
    closing: int
    lines: Sequence[tuple[Key, int]]  # the fact and net amount of each line


@dataclass(frozen=True, slots=True, kw_only=True)
class PagesVerdict:
    """Differences between merchants' statements and balances."""

    pages: int = 0
    lines: int = 0
    open_facts: int = 0  # facts on the open day
    torn: int = 0  # the opening balance is not the previous closing balance, or 0
    unsummed: int = 0  # the sum of movements or lines is not the change in the balance
    doubled: int = 0  # facts that appear in two statements
    unknown: int = 0  # lines that are not in the ledger, or have a different amount
    unbalanced: int = 0  # the last closing balance plus the open day is not the balance
    balance_minor: int = 0  # in minor units, summed over all currencies

    @property
    def is_clean(self) -> bool:
        wrong = self.torn + self.unsummed + self.doubled + self.unknown + self.unbalanced
        return not wrong


def judge_pages(pages: Sequence[Page], entries: dict[Key, int], balance: int) -> PagesVerdict:
    """Compare a currency's statements, in order, with the ledger and the reported balance."""
    openings = [0, *(page.closing for page in pages)]
    times = Counter(key for page in pages for key, _ in page.lines)
    stated = [line for page in pages for line in page.lines]
    rest = {key: amount for key, amount in entries.items() if key not in times}
    return PagesVerdict(
        pages=len(pages),
        lines=len(stated),
        open_facts=len(rest),
        torn=sum(page.opening != before for page, before in zip(pages, openings, strict=False)),
        unsummed=sum(
            not page.closing - page.opening == page.moved == sum(net for _, net in page.lines)
            for page in pages
        ),
        doubled=sum(count - 1 for count in times.values()),
        unknown=sum(entries.get(key) != net for key, net in stated),
        unbalanced=int(not openings[-1] + sum(rest.values()) == sum(entries.values()) == balance),
        balance_minor=balance,
    )


def add_up(verdicts: Sequence[PagesVerdict]) -> PagesVerdict:
    return PagesVerdict(
        **{
            name: sum(getattr(verdict, name) for verdict in verdicts)
            for name in PagesVerdict.__slots__
        }
    )


async def read_verdict(database: asyncpg.Connection, merchants: Sequence[int]) -> PagesVerdict:
    """Check all statements and lines of these merchants."""
    return add_up(
        [verdict for merchant in merchants for verdict in await _of_merchant(database, merchant)]
    )


async def count_unclosed(database: asyncpg.Connection, merchants: Sequence[int]) -> int:
    """Count the merchants that have ledger entries, but whose last closed day is not yesterday."""
    return await database.fetchval(
        """
        SELECT count(*)
        FROM unnest($1::bigint[]) AS m (id)
        LEFT JOIN statement_close c ON c.merchant_id = m.id
        WHERE EXISTS (SELECT FROM ledger_entry e WHERE e.merchant_id = m.id)
            AND c.day IS DISTINCT FROM (clock() AT TIME ZONE 'UTC')::date - 1
        """,
        merchants,
    )


async def _of_merchant(database: asyncpg.Connection, merchant_id: int) -> list[PagesVerdict]:
    # The store functions expect an `Executor`, but call only methods that a connection also has.
    statements = await statement_store.list_statements(database, _ALL, merchant_id=merchant_id)  # type: ignore[arg-type]
    pages: dict[tuple[str, str], list[Page]] = {}
    for statement in reversed(statements):
        money = (statement.currency, statement.chain)
        pages.setdefault(money, []).append(await _page(database, statement))
    entries: dict[tuple[str, str], dict[Key, int]] = {}
    for row in await database.fetch(_OWED, f"merchant_payable:{merchant_id}"):
        facts = entries.setdefault((row["currency"], row["chain"]), {})
        facts[row["fact"], str(row["fact_id"])] = int(row["amount"])
    current_balances = await statement_store.list_balances(database, merchant_id)  # type: ignore[arg-type]
    balances = {
        (balance.currency, balance.chain): balance.amount_minor for balance in current_balances
    }
    return [
        judge_pages(pages.get(money, []), entries.get(money, {}), balances.get(money, 0))
        for money in sorted(pages.keys() | entries.keys() | balances.keys())
    ]


async def _page(database: asyncpg.Connection, statement: Statement) -> Page:
    lines: list[tuple[Key, int]] = []
    while lines_page := await statement_store.list_lines(
        database,  # type: ignore[arg-type]
        statement,
        len(lines),
        _LINES,
    ):
        lines += [((str(line.fact), str(line.fact_id)), line.net_minor) for line in lines_page]
    return Page(
        opening=statement.opening_minor,
        moved=sum(statement.movements.values()),
        closing=statement.closing_minor,
        lines=lines,
    )
