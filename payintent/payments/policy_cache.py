"""Restrictions and fraud rules, cached in this process for a second at most."""

import time
from collections.abc import Callable
from functools import partial

from payintent.domain.fraud import FraudRuleSet
from payintent.domain.restriction import Restrictions
from payintent.storage import fraud, restrictions
from payintent.storage.cells import Cells
from payintent.storage.database import Database
from payintent.ttl_cache import TtlCache


class PolicyCache:
    """Reads restrictions and rules on use, when the cached ones are too old."""

    def __init__(
        self,
        cells: Cells,
        kept_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cells = cells
        self._rules = cells.each(
            lambda database: TtlCache(
                partial(_read_rules, database),
                FraudRuleSet(),
                kept_s,
                monotonic,
                database.gate and database.gate.enter,
            )
        )
        self._restrictions = TtlCache(self._read_restrictions, Restrictions(), kept_s, monotonic)

    async def rules(self, cell: int = 0) -> FraudRuleSet:
        """Return the fraud rules in force in a cell: its denials name rules that it has."""
        return await self._rules.at(cell).get()

    async def restrictions(self) -> Restrictions:
        """Return the restrictions in force."""
        return await self._restrictions.get()

    async def _read_restrictions(self, previous: Restrictions) -> Restrictions:
        del previous
        return restrictions.active_restrictions(
            await self._cells.read_copy(restrictions.list_restrictions)
        )


async def _read_rules(database: Database, previous: FraudRuleSet) -> FraudRuleSet:
    """Read the rules only where their version has changed: they may be many."""
    mark = await fraud.rules_version(database)
    if mark == previous.mark:
        return previous
    return FraudRuleSet(await fraud.list_rules(database), mark)
