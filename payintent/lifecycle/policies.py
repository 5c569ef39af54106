"""Restrictions and fraud rules as this process knows them: a second old at most."""

import time
from collections.abc import Callable, Sequence

from payintent.domain.fraud import FraudRule
from payintent.domain.restriction import Restrictions
from payintent.storage import policies
from payintent.storage.database import Database


class Policies:
    """Reads them when they are asked for and what is known has become old."""

    def __init__(
        self,
        database: Database,
        kept_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._kept_s = kept_s
        self._monotonic = monotonic
        self._rules: tuple[float, Sequence[FraudRule]] | None = None
        self._restrictions: tuple[float, Restrictions] | None = None

    async def rules(self) -> Sequence[FraudRule]:
        """Give the fraud rules in force."""
        now = self._monotonic()
        if self._rules is None or self._rules[0] <= now:
            self._rules = (now + self._kept_s, await policies.rules(self._database))
        return self._rules[1]

    async def restrictions(self) -> Restrictions:
        """Give the restrictions in force."""
        now = self._monotonic()
        if self._restrictions is None or self._restrictions[0] <= now:
            known = policies.effective(await policies.restricted(self._database))
            self._restrictions = (now + self._kept_s, known)
        return self._restrictions[1]
