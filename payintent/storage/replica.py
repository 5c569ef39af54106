"""Lists read on a replica, while it is known to be no further behind than a bound.

The position of the primary's log is sampled, with the time of our own clock. A replica that has
replayed a sampled position has everything that was committed before that time: no clock of another
machine matters, and an idle primary looks no different from a busy one.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import LiteralString

from prometheus_client import Counter

from payintent.config import Settings
from payintent.domain.errors import PermissionDeniedError, StorageUnavailableError
from payintent.log import get_logger
from payintent.storage.database import Database, Executor, Row, open_read_pool
from payintent.storage.payer_sealing import PayerSealing

_LOOK_EVERY_S = 1.0
_LOOK_TIMEOUT_S = 2.0
_EXAMINE_S = 5.0  # how long an operator waits at most for a replica to catch up
_RETRY_S = 5.0  # after a look that failed
_CATCH_UP_S = (0.0, 0.02, 0.1)  # pauses in which a replica usually replays what was just written
#: A row is committed at most so long after its `created_at`, and clocks differ by less than this.
_PAGE_MARGIN_S = 10.0

_FAILURES = (StorageUnavailableError, PermissionDeniedError, TimeoutError)
_POSITION: LiteralString = """
    SELECT (CASE WHEN pg_is_in_recovery()
                THEN pg_last_wal_replay_lsn()
                ELSE pg_current_wal_lsn()
            END - '0/0'::pg_lsn)::bigint AS position,
        (SELECT system_identifier FROM pg_control_system()) AS cluster,
        current_database() AS name,
        pg_is_in_recovery() AS is_standby
"""

_log = get_logger("replica")

READS = Counter("payintent_list_reads_total", "Statements of lists by server", ["server"])


@dataclass(frozen=True, slots=True)
class ReplicaFinding:
    """Whether the replica can be read, and what it is."""

    is_standby: bool
    text: str
    is_near: bool = True


class ReadDatabase:
    """Runs statements of lists on the replica where it is near enough, else on the primary."""

    def __init__(self, primary: Database, settings: Settings) -> None:
        self._primary = primary
        pool = open_read_pool(settings)
        self._replica = Database(settings, pool=pool) if pool else None
        self._lag_max_s = settings.database_read_lag_max_s
        self._samples: deque[tuple[float, int]] = deque()  # when, and the primary's position
        self._fresh_until = 0.0  # until then, what the replica shows is within the bound
        self._look_at = 0.0
        self._look: asyncio.Task[None] | None = None
        self._is_noted = False  # whether anything was logged of the replica yet
        self._not_used_why: str | None = None

    @property
    def payer_sealing(self) -> PayerSealing:
        """Return what opens the values of payers."""
        return self._primary.payer_sealing

    async def fetch(self, query: LiteralString, *args: object) -> list[Row]:
        """Return all rows of a statement that only reads."""
        if self._replica is None:
            return await self._primary.fetch(query, *args)
        if (replica := await self._fresh_replica(self._replica)) is not None:
            try:
                rows = await replica.fetch(query, *args)
            except StorageUnavailableError as error:
                self._look_at = 0.0
                self._give_up(str(error))
            else:
                READS.labels("replica").inc()
                return rows
        READS.labels("primary").inc()
        return await self._primary.fetch(query, *args)

    async def row(self, query: LiteralString, *args: object) -> Row | None:
        """Return the first row of a statement that only reads."""
        rows = await self.fetch(query, *args)
        return rows[0] if rows else None

    def page_after(self, last_at: datetime | None) -> Executor:
        """Return where to read the page of a list that goes on below `last_at`.

        A page below rows that the replica may not have yet is the primary's: else those between
        would be on no page.
        """
        if last_at is None:
            return self
        youngest = datetime.now(UTC) - timedelta(seconds=self._lag_max_s + _PAGE_MARGIN_S)
        return self if last_at < youngest else self._primary

    async def examine(self) -> ReplicaFinding | None:
        """Say what the replica is, for an operator; None where none is set."""
        if self._replica is None:
            return None
        primary = await self._position(self._primary)
        try:
            async with asyncio.timeout(_LOOK_TIMEOUT_S):
                there = await self._position(self._replica, primary)
        except _FAILURES as error:
            why = str(error) or "it does not answer"
            return ReplicaFinding(is_standby=False, text=f"{why}; lists are read on the primary")
        if not there["is_standby"]:
            return ReplicaFinding(is_standby=False, text="it is a primary, and spares it no list")
        behind = max(0, primary["position"] - (there["position"] or 0))
        if behind and not await self._catches_up(self._replica, primary["position"]):
            text = f"a standby that is more than {self._lag_max_s:g} s behind"
            why = f"{text}, {behind} bytes of log; lists are read on the primary"
            return ReplicaFinding(is_standby=True, text=why, is_near=False)
        return ReplicaFinding(is_standby=True, text=f"a standby, {behind} bytes of log behind")

    async def _catches_up(self, replica: Database, position: int) -> bool:
        """Tell whether the replica replays a position within the bound."""
        try:
            async with asyncio.timeout(min(self._lag_max_s, _EXAMINE_S)):
                while True:
                    there = await self._position(replica)
                    if (there["position"] or 0) >= position:
                        return True
                    await asyncio.sleep(_CATCH_UP_S[-1])
        except _FAILURES:
            return False

    async def close(self) -> None:
        """Close the connections to the replica."""
        if self._look is not None:
            self._look.cancel()
            await asyncio.gather(self._look, return_exceptions=True)
        if self._replica is not None:
            await self._replica.close()

    async def _fresh_replica(self, replica: Database) -> Database | None:
        """Return the replica where it is within the bound.

        It is looked at once a second at most, and only while there are lists to read. A look is
        waited for where nothing is known of the replica.
        """
        now = monotonic()
        if self._look is None and now >= self._look_at:
            self._look_at = now + _LOOK_EVERY_S
            self._look = asyncio.create_task(self._look_at_both(replica))
        if now < self._fresh_until:
            return replica
        if self._look is not None:
            await asyncio.shield(self._look)
        return replica if monotonic() < self._fresh_until else None

    async def _look_at_both(self, replica: Database) -> None:
        try:
            await self._compare(replica)
        finally:
            self._look = None

    async def _compare(self, replica: Database) -> None:
        at = monotonic()
        try:
            primary = await self._position(self._primary)
        except _FAILURES:
            return  # what was known of the replica ends by itself
        self._samples.append((at, primary["position"]))
        while self._samples[0][0] < at - self._lag_max_s:
            self._samples.popleft()
        try:
            async with asyncio.timeout(_LOOK_TIMEOUT_S):
                replayed = await self._replayed(replica, primary)
        except _FAILURES as error:
            replica.cut_off()  # so that no list waits for a replica that does not answer
            self._look_at = monotonic() + _RETRY_S
            self._give_up(str(error) or "it does not answer")
            return
        reached = [sampled_at for sampled_at, position in self._samples if position <= replayed]
        if reached:
            self._fresh_until = reached[-1] + self._lag_max_s
            self._note(None)
        else:
            self._give_up(f"it is more than {self._lag_max_s:g} s behind")

    async def _replayed(self, replica: Database, primary: Row) -> int:
        """Return the position that the replica has; it gets a moment to reach the primary's."""
        position = 0
        for pause_s in _CATCH_UP_S:
            await asyncio.sleep(pause_s)
            there = await self._position(replica, primary)
            position = there["position"] or 0
            if position >= primary["position"] or monotonic() < self._fresh_until:
                break
        return position

    @staticmethod
    async def _position(database: Database, primary: Row | None = None) -> Row:
        """Read how far a server is; it must be of the primary's cluster, with its database."""
        row = await database.row(_POSITION)
        assert row is not None  # noqa: S101 - the statement always returns one row
        if primary and any(row[name] != primary[name] for name in ("cluster", "name")):
            raise StorageUnavailableError("it is no replica of this database")
        return row

    def _give_up(self, why: str) -> None:
        self._fresh_until = 0.0
        self._note(why)

    def _note(self, why: str | None) -> None:
        """Log a change: `why` the replica is not used, None where it is."""
        if self._is_noted and why == self._not_used_why:
            return
        if why is None:
            _log.info("replica_used")
        else:
            _log.warning("replica_not_used", why=why)
        self._is_noted, self._not_used_why = True, why
