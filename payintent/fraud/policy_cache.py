"""A per-process cache of restrictions and fraud rules."""

import time
from collections.abc import Callable

from payintent.db.database import Database
from payintent.fraud import store as fraud_store
from payintent.fraud.model import FraudRuleSet
from payintent.merchants import restrictions
from payintent.merchants.payable import Restrictions
from payintent.runtime.caches import TtlCache


class PolicyCache:
    """Provides restrictions and rules that are at most `max_age_s` seconds old."""

    def __init__(
        self,
        database: Database,
        max_age_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._rules = TtlCache(self._load_rules, FraudRuleSet(), max_age_s, monotonic)
        self._restrictions = TtlCache(self._load_restrictions, Restrictions(), max_age_s, monotonic)

    async def get_rules(self) -> FraudRuleSet:
        return await self._rules.get()

    async def get_restrictions(self) -> Restrictions:
        return await self._restrictions.get()

    async def _load_restrictions(self, previous: Restrictions) -> Restrictions:
        del previous
        return restrictions.collect_countries(await restrictions.list_restrictions(self._database))

    async def _load_rules(self, previous: FraudRuleSet) -> FraudRuleSet:
        """Reload the rules only if their version has changed, because there may be many."""
        version = await fraud_store.get_rules_version(self._database)
        if version == previous.version:
            return previous
        return FraudRuleSet(await fraud_store.list_rules(self._database), version)
