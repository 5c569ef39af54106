"""Restrictions and fraud rules, cached in this process for a second at most."""

import time
from collections.abc import Callable

from payintent.domain.fraud import FraudRuleSet
from payintent.domain.restriction import Restrictions
from payintent.storage import fraud, restrictions
from payintent.storage.database import Database
from payintent.ttl_cache import TtlCache


class PolicyCache:
    """Reads restrictions and rules when they are used and the cached values are too old."""

    def __init__(
        self,
        database: Database,
        kept_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._rules = TtlCache(self._read_rules, FraudRuleSet(), kept_s, monotonic)
        self._restrictions = TtlCache(self._read_restrictions, Restrictions(), kept_s, monotonic)

    async def rules(self) -> FraudRuleSet:
        return await self._rules.get()

    async def restrictions(self) -> Restrictions:
        return await self._restrictions.get()

    async def _read_restrictions(self, previous: Restrictions) -> Restrictions:
        del previous
        return restrictions.active_restrictions(
            await restrictions.list_restrictions(self._database)
        )

    async def _read_rules(self, previous: FraudRuleSet) -> FraudRuleSet:
        """Read the rules only if their version has changed: they may be many."""
        mark = await fraud.rules_version(self._database)
        if mark == previous.mark:
            return previous
        return FraudRuleSet(await fraud.list_rules(self._database), mark)
