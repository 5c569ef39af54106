"""What became of the feeds, the payments and the books; every count but the sums must be none."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import asyncpg

from drills.books.kinds import KINDS
from payintent.accounting.ledger_check_store import find_differences
from payintent.core import ids

_ENDS = {kind.name: kind.ends for kind in KINDS}

#: What the ledger has at the gateways, and what captures, refunds, disputes and payouts leave.
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
    """One merchant's feed, as its reader has it, against the events that there are."""

    doubled: int
    missing: int
    unknown: int
    misplaced: int

    @property
    def is_clean(self) -> bool:
        """Tell whether the reader has every event once, and in order."""
        return not (self.doubled or self.missing or self.unknown or self.misplaced)


def judge_feed(read: Sequence[str], stored: Sequence[str]) -> FeedVerdict:
    """Compare what a reader has with the events in the order of the feed."""
    times = Counter(read)
    common = set(times) & set(stored)
    in_order = [found for found in dict.fromkeys(read) if found in common]
    wanted = [found for found in stored if found in common]
    return FeedVerdict(
        doubled=sum(count - 1 for count in times.values()),
        missing=len(set(stored) - set(times)),
        unknown=len(set(times) - set(stored)),
        misplaced=sum(a != b for a, b in zip(in_order, wanted, strict=True)),
    )


def judge_payments(
    kinds: Mapping[str, str], stored: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Give the payments that were acknowledged and are not there, and those that ended wrongly."""
    lost = [name for name in kinds if name not in stored]
    wrong = [
        f"{kind}: {stored[name]}"
        for name, kind in kinds.items()
        if name in stored and stored[name] not in _ENDS[kind]
    ]
    return lost, wrong


@dataclass(frozen=True, slots=True)
class Books:
    """The ledger against the facts, in minor units."""

    differences: int  # accounts, by `payintent ledger check`
    at_gateways: Mapping[str, Decimal]  # by currency, by the ledger
    at_gateways_by_facts: Mapping[str, Decimal]
    counts: Mapping[str, int]

    @property
    def is_clean(self) -> bool:
        """Tell whether the ledger says what the facts say, to the unit."""
        same = self.at_gateways == self.at_gateways_by_facts
        return same and not self.differences


async def read_books(database: asyncpg.Connection) -> Books:
    """Compare the ledger with the facts, by its own check and by a second formula."""
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
    """Give the status of every payment, by its id."""
    rows = await database.fetch("SELECT id, status FROM payment")
    return {ids.format_id(ids.PAYMENT, row["id"]): row["status"] for row in rows}


async def read_feed(database: asyncpg.Connection, merchant_id: int) -> list[str]:
    """Give a merchant's events in the order of its feed; those without a number are last."""
    rows = await database.fetch(
        "SELECT id FROM event WHERE merchant_id = $1 ORDER BY feed_position NULLS LAST, id",
        merchant_id,
    )
    return [str(row["id"]) for row in rows]
