"""Checks the event feeds, the payments and the ledger after a drill."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import asyncpg

from drills.books.kinds import KINDS
from payintent.accounting.ledger_check_store import find_differences
from payintent.core import ids

_ENDS = {kind.name: kind.ends for kind in KINDS}

#: The balances at the gateways, from the ledger and from captures, refunds, disputes and payouts.
_CLEARING = """
WITH facts AS (
    SELECT account_id, currency, amount_minor AS amount FROM capture
    UNION ALL
    SELECT c.account_id, c.currency, -r.amount_minor
    FROM refund r JOIN capture c ON c.id = r.capture_id
    WHERE r.status = 'SUCCEEDED'
    UNION ALL
    SELECT c.account_id, c.currency, -d.amount_minor
    FROM dispute d JOIN capture c ON c.id = d.capture_id
    WHERE d.state = 'lost'
    UNION ALL
    SELECT account_id, currency, -amount_minor - fee_minor FROM gateway_payout
), entered AS (
    SELECT debit AS account, currency, amount FROM ledger_entry
    UNION ALL
    SELECT credit, currency, -amount FROM ledger_entry
)
SELECT currency, sum(fact)::numeric AS facts, sum(entry)::numeric AS ledger
FROM (
    SELECT currency, amount AS fact, 0 AS entry FROM facts
    UNION ALL
    SELECT currency, 0, amount FROM entered WHERE account LIKE 'gateway_clearing:%'
) sides
GROUP BY currency
ORDER BY currency
"""
_SUMS = """
SELECT
    (SELECT count(*) FROM capture) AS captures,
    (SELECT count(*) FROM capture WHERE NOT credited) AS uncredited,
    (SELECT count(*) FROM refund WHERE status = 'SUCCEEDED') AS refunds,
    (SELECT count(*) FROM refund WHERE status = 'FAILED') AS refunds_failed,
    (SELECT count(*) FROM dispute) AS disputes,
    (SELECT count(*) FROM money_case) AS cases,
    (SELECT count(*) FROM ledger_entry) AS entries,
    (SELECT count(*) FROM payout) AS payouts,
    (SELECT count(*) FROM gateway_payout) AS gateway_payouts
"""


@dataclass(frozen=True, slots=True)
class FeedVerdict:
    """Differences between a merchant's journal and its stored events. All counts must be 0."""

    doubled: int
    missing: int
    unknown: int
    misplaced: int

    @property
    def is_clean(self) -> bool:
        return not (self.doubled or self.missing or self.unknown or self.misplaced)


def judge_feed(read: Sequence[str], stored: Sequence[str]) -> FeedVerdict:
    """Compare the events that were read with the stored events, including their order."""
    times = Counter(read)
    common = set(times) & set(stored)
    in_order = [event_id for event_id in dict.fromkeys(read) if event_id in common]
    expected = [event_id for event_id in stored if event_id in common]
    return FeedVerdict(
        doubled=sum(count - 1 for count in times.values()),
        missing=len(set(stored) - set(times)),
        unknown=len(set(times) - set(stored)),
        misplaced=sum(a != b for a, b in zip(in_order, expected, strict=True)),
    )


def judge_payments(
    kinds: Mapping[str, str], stored: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Return acknowledged payments that are not stored, and payments with an unexpected status."""
    lost = [name for name in kinds if name not in stored]
    wrong = [
        f"{kind}: {stored[name]}"
        for name, kind in kinds.items()
        if name in stored and stored[name] not in _ENDS[kind]
    ]
    return lost, wrong


@dataclass(frozen=True, slots=True)
class Books:
    """The ledger, and the balances calculated from captures and payouts, in minor units."""

    differences: int  # accounts that `payintent ledger check` would list
    at_gateways: Mapping[str, Decimal]  # from the ledger, by currency
    at_gateways_by_facts: Mapping[str, Decimal]
    counts: Mapping[str, int]

    @property
    def is_clean(self) -> bool:
        same = self.at_gateways == self.at_gateways_by_facts
        return same and not self.differences


async def read_books(database: asyncpg.Connection) -> Books:
    """Compare the ledger with the other tables, using its own check and a second formula."""
    differences = await find_differences(database)  # type: ignore[arg-type]
    sums = await database.fetch(_CLEARING)
    counts = await database.fetchrow(_SUMS)
    return Books(
        differences=len(differences),
        at_gateways={row["currency"]: row["ledger"] for row in sums},
        at_gateways_by_facts={row["currency"]: row["facts"] for row in sums},
        counts=dict(counts),
    )


async def read_statuses(database: asyncpg.Connection) -> dict[str, str]:
    """Return the status of every payment by its ID."""
    rows = await database.fetch("SELECT id, status FROM payment")
    return {ids.format_id(ids.PAYMENT, row["id"]): row["status"] for row in rows}


async def read_feed(database: asyncpg.Connection, merchant_id: int) -> list[str]:
    """Return a merchant's events in the order of its feed, with unnumbered events last."""
    rows = await database.fetch(
        "SELECT id FROM event WHERE merchant_id = $1 ORDER BY feed_position NULLS LAST, id",
        merchant_id,
    )
    return [str(row["id"]) for row in rows]
