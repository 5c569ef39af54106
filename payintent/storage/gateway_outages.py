"""Gateway outages: open circuit breakers, shared by all processes."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from payintent.storage.database import Executor

_OUTAGES_MAX = 10_000
_PROBE_S = 20.0  # longer than any gateway timeout


@dataclass(frozen=True, slots=True)
class ChannelState:
    """The state of a channel with an open circuit."""

    account_id: int
    channel: str
    open: bool  # False: a probe is allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOutage:
    account_id: int
    provider: str
    name: str  # of the account
    channel: str
    since: datetime
    until: datetime  # a probe is allowed from then on
    trips: int  # consecutive openings
    detail: str  # of the last failure


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayAbsence:
    """Whether a session's gateway is disabled or unresponsive."""

    account_enabled: bool
    provider_enabled: bool
    outage_since: datetime | None  # of the session channel
    silent_since: datetime | None  # the first unanswered request to close the session


async def get_absence(database: Executor, session_id: UUID) -> GatewayAbsence | None:
    """Read the state of a session's gateway; None if the account has no credentials."""
    row = await database.row(
        """
        SELECT a.enabled AS account_enabled, coalesce(p.enabled, false) AS provider_enabled,
            o.since AS outage_since, s.silent_since
        FROM session s
        JOIN provider_account a ON a.id = s.account_id AND a.sealed IS NOT NULL
        LEFT JOIN provider p ON p.name = a.provider
        LEFT JOIN gateway_outage o ON o.account_id = a.id AND o.channel = 'sessions'
        WHERE s.id = $1
        """,
        session_id,
    )
    return GatewayAbsence(**row) if row else None


async def list_outages(database: Executor) -> list[GatewayOutage]:
    """List outages, oldest first."""
    rows = await database.fetch(
        """
        SELECT o.account_id, a.provider, a.name, o.channel, o.since, o.until, o.trips,
            o.detail
        FROM gateway_outage o
        JOIN provider_account a ON a.id = o.account_id
        ORDER BY o.since, o.account_id, o.channel
        LIMIT $1
        """,
        _OUTAGES_MAX,
    )
    return [GatewayOutage(**row) for row in rows]


async def list_channel_states(database: Executor) -> list[ChannelState]:
    """List circuits that have opened; they are stored until a request succeeds."""
    rows = await database.fetch(
        """
        SELECT account_id, channel,
            until > clock() OR coalesce(probed_at > clock() - $2 * interval '1 second', false)
                AS open
        FROM gateway_outage
        LIMIT $1
        """,
        _OUTAGES_MAX,
        _PROBE_S,
    )
    return [ChannelState(**row) for row in rows]


@dataclass(frozen=True, slots=True)
class CircuitPauses:
    """The length of the first pause, and the maximum after repeated failures."""

    first_s: float
    longest_s: float


async def open_circuit(
    database: Executor, account_id: int, channel: str, pauses: CircuitPauses, detail: str
) -> bool:
    """Open a circuit; each pause is twice as long as the last. `detail` is the last failure.

    False if a concurrent process has just opened it.
    """
    row = await database.row(
        """
        WITH again AS (
            UPDATE gateway_outage o
            SET trips = n.trips + 1, until = n.until, probed_at = NULL, detail = $5
            FROM (
                SELECT account_id, channel, trips,
                    clock() + least($3 * 2 ^ least(trips, 20), $4) * interval '1 second' AS until
                FROM gateway_outage
                WHERE account_id = $1 AND channel = $2 AND until <= clock()
                FOR NO KEY UPDATE
            ) n
            WHERE o.account_id = n.account_id AND o.channel = n.channel
            RETURNING o.account_id
        ), first AS (
            INSERT INTO gateway_outage (account_id, channel, until, detail)
            SELECT $1, $2, clock() + $3 * interval '1 second', $5
            WHERE NOT EXISTS (SELECT FROM again)
            ON CONFLICT (account_id, channel) DO NOTHING
            RETURNING account_id
        )
        SELECT account_id FROM again
        UNION ALL
        SELECT account_id FROM first
        """,
        account_id,
        channel,
        pauses.first_s,
        pauses.longest_s,
        detail,
    )
    return row is not None


async def try_probe(database: Executor, account_id: int, channel: str) -> bool:
    """Claim the probe of a channel; False if it is claimed already, or it is too early."""
    row = await database.row(
        """
        UPDATE gateway_outage
        SET probed_at = clock()
        WHERE account_id = $1 AND channel = $2 AND until <= clock()
            AND (probed_at IS NULL OR probed_at <= clock() - $3 * interval '1 second')
        RETURNING account_id
        """,
        account_id,
        channel,
        _PROBE_S,
    )
    return row is not None


async def close_circuit(database: Executor, account_id: int, channel: str) -> None:
    """Close a circuit after a successful request."""
    await database.fetch(
        "DELETE FROM gateway_outage WHERE account_id = $1 AND channel = $2", account_id, channel
    )
