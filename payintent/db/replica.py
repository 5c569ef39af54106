"""Read lists from a replica while its lag is within a limit.

The primary's log position is sampled together with our own clock's time. A replica that has
replayed a sampled position contains all commits up to that time. This also works while the primary
is idle, and it does not depend on the servers' clocks.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import LiteralString

from prometheus_client import Counter

from payintent.core.errors import (
    LockTimeoutError,
    PermissionDeniedError,
    StorageUnavailableError,
)
from payintent.db.database import Database, Executor, Row, open_read_pool
from payintent.db.sealing import PayerSealing
from payintent.runtime.log import get_logger
from payintent.runtime.settings import Settings

_CHECK_EVERY_S = 1.0
_CHECK_TIMEOUT_S = 2.0
_STATUS_WAIT_S = 5.0  # how long `get_status` waits for the replica to catch up
_RETRY_S = 5.0  # after a failed check
_CATCH_UP_PAUSES_S = (0.0, 0.02, 0.1)  # a replica usually catches up during these pauses
#: Allows for the time between `created_at` and the commit, and for clock differences.
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

READS = Counter("payintent_list_reads_total", "List queries by server", ["server"])


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    is_standby: bool
    text: str
    is_current: bool = True


class ReadDatabase(Executor):
    """Runs list queries on the replica if its lag is within the limit, otherwise on the primary."""

    def __init__(self, primary: Database, settings: Settings) -> None:
        self._primary = primary
        pool = open_read_pool(settings)
        self._replica = Database(settings, pool=pool) if pool else None
        self._lag_max_s = settings.database_read_lag_max_s
        self._samples: deque[tuple[float, int]] = deque()  # time and position of the primary
        self._fresh_until = 0.0  # the replica's lag is within the limit until then
        self._next_check_at = 0.0
        self._check: asyncio.Task[None] | None = None
        self._logged_reason: str | None = ""  # None: in use; "": nothing logged yet

    @property
    def payer_sealing(self) -> PayerSealing:
        return self._primary.payer_sealing

    async def fetch(self, query: LiteralString, *args: object) -> list[Row]:
        if self._replica is None:
            return await self._primary.fetch(query, *args)
        if (replica := await self._get_fresh_replica(self._replica)) is not None:
            try:
                rows = await replica.fetch(query, *args)
            except (StorageUnavailableError, LockTimeoutError) as error:
                self._next_check_at = 0.0
                self._stop_using(str(error))
            else:
                READS.labels("replica").inc()
                return rows
        READS.labels("primary").inc()
        return await self._primary.fetch(query, *args)

    async def row(self, query: LiteralString, *args: object) -> Row | None:
        rows = await self.fetch(query, *args)
        return rows[0] if rows else None

    def get_page_database(self, last_at: datetime | None) -> Executor:
        """Return the database for the list page after a row created at `last_at`.

        Returns the primary if the previous page may have ended with rows that the replica lacks,
        because the replica's page would then skip rows.
        """
        if last_at is None:
            return self
        replicated_until = datetime.now(UTC) - timedelta(seconds=self._lag_max_s + _PAGE_MARGIN_S)
        return self if last_at < replicated_until else self._primary

    async def get_status(self) -> ReplicaStatus | None:
        """Describe the replica for operators, or return None if no replica is configured."""
        if self._replica is None:
            return None
        primary = await self._fetch_position(self._primary)
        try:
            async with asyncio.timeout(_CHECK_TIMEOUT_S):
                standby = await self._fetch_position(self._replica, primary)
        except _FAILURES as error:
            problem = str(error) or "it does not respond"
            text = f"{problem}; lists are read from the primary"
            return ReplicaStatus(is_standby=False, text=text)
        if not standby["is_standby"]:
            return ReplicaStatus(is_standby=False, text="it is a primary, not a replica")
        behind = max(0, primary["position"] - (standby["position"] or 0))
        if behind and not await self._wait_for_catch_up(self._replica, primary["position"]):
            lag = f"more than {self._catch_up_max_s:g} s behind, {behind} bytes of WAL"
            text = f"a standby that is {lag}; lists are read from the primary"
            return ReplicaStatus(is_standby=True, text=text, is_current=False)
        return ReplicaStatus(is_standby=True, text=f"a standby, {behind} bytes of WAL behind")

    @property
    def _catch_up_max_s(self) -> float:
        return min(self._lag_max_s, _STATUS_WAIT_S)

    async def _wait_for_catch_up(self, replica: Database, position: int) -> bool:
        try:
            async with asyncio.timeout(self._catch_up_max_s):
                while True:
                    standby = await self._fetch_position(replica)
                    if (standby["position"] or 0) >= position:
                        return True
                    await asyncio.sleep(_CATCH_UP_PAUSES_S[-1])
        except _FAILURES:
            return False

    async def close(self) -> None:
        if self._check is not None:
            self._check.cancel()
            await asyncio.gather(self._check, return_exceptions=True)
        if self._replica is not None:
            await self._replica.close()

    async def _get_fresh_replica(self, replica: Database) -> Database | None:
        """Return the replica if its lag is within the limit.

        The lag is checked at most once a second, and only while lists are read. Callers wait for
        the check only if the previous result has expired.
        """
        now = monotonic()
        if self._check is None and now >= self._next_check_at:
            self._next_check_at = now + _CHECK_EVERY_S
            self._check = asyncio.create_task(self._check_once(replica))
        if now < self._fresh_until:
            return replica
        if self._check is not None:
            await asyncio.shield(self._check)
        return replica if monotonic() < self._fresh_until else None

    async def _check_once(self, replica: Database) -> None:
        try:
            await self._update_lag(replica)
        finally:
            self._check = None

    async def _update_lag(self, replica: Database) -> None:
        now = monotonic()
        try:
            primary = await self._fetch_position(self._primary)
        except _FAILURES:
            return  # the previous result remains valid until `_fresh_until`
        self._samples.append((now, primary["position"]))
        while self._samples[0][0] < now - self._lag_max_s:
            self._samples.popleft()
        try:
            async with asyncio.timeout(_CHECK_TIMEOUT_S):
                replayed_position = await self._fetch_replayed_position(replica, primary)
        except _FAILURES as error:
            replica.drop_connections()  # lists must not wait for an unresponsive replica
            self._next_check_at = monotonic() + _RETRY_S
            self._stop_using(str(error))
            return
        times = [
            sampled_at for sampled_at, position in self._samples if position <= replayed_position
        ]
        if times:
            self._fresh_until = times[-1] + self._lag_max_s
            self._log_change(None)
        else:
            self._stop_using(f"it is more than {self._lag_max_s:g} s behind")

    async def _fetch_replayed_position(self, replica: Database, primary: Row) -> int:
        """Return the replica's replayed position, pausing briefly to let it catch up."""
        position = 0
        for pause_s in _CATCH_UP_PAUSES_S:
            await asyncio.sleep(pause_s)
            standby = await self._fetch_position(replica, primary)
            position = standby["position"] or 0
            if position >= primary["position"] or monotonic() < self._fresh_until:
                break
        return position

    @staticmethod
    async def _fetch_position(database: Database, primary: Row | None = None) -> Row:
        """Read a server's log position. Its cluster and database must match the primary's."""
        row = await database.row(_POSITION)
        assert row is not None  # noqa: S101 - the statement always returns one row
        if primary and any(row[name] != primary[name] for name in ("cluster", "name")):
            raise StorageUnavailableError("it is not a replica of this database")
        return row

    def _stop_using(self, reason: str) -> None:
        self._fresh_until = 0.0
        self._log_change(reason or "it does not respond")

    def _log_change(self, reason: str | None) -> None:
        if reason == self._logged_reason:
            return
        if reason is None:
            _log.info("replica_used")
        else:
            _log.warning("replica_not_used", why=reason)
        self._logged_reason = reason
