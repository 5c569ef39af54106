"""Gateways that do not answer, as all processes know them."""

from dataclasses import dataclass
from datetime import datetime

from payintent.storage.database import Executor

_KNOWN_MAX = 10_000
_PROBE_S = 20.0  # longer than a gateway may take


@dataclass(frozen=True, slots=True)
class ChannelState:
    """One channel of one account that is out of order, or was until a moment ago."""

    account_id: int
    channel: str
    open: bool  # nobody is to try yet


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOutage:
    """An outage as people read it."""

    account_id: int
    provider: str
    name: str  # the account's
    channel: str
    since: datetime
    until: datetime  # then somebody may try
    trips: int  # how often nobody got through


async def list_outages(database: Executor) -> list[GatewayOutage]:
    """List them for people, the oldest first."""
    rows = await database.fetch(
        """
        SELECT o.account_id, a.provider, a.name, o.channel, o.since, o.until, o.trips
        FROM gateway_outage o
        JOIN provider_account a ON a.id = o.account_id
        ORDER BY o.since, o.account_id, o.channel
        LIMIT $1
        """,
        _KNOWN_MAX,
    )
    return [GatewayOutage(**row) for row in rows]


async def list_channel_states(database: Executor) -> list[ChannelState]:
    """List them; a row stays until somebody got through."""
    rows = await database.fetch(
        """
        SELECT account_id, channel,
            until > clock() OR coalesce(probed_at > clock() - $2 * interval '1 second', false)
                AS open
        FROM gateway_outage
        LIMIT $1
        """,
        _KNOWN_MAX,
        _PROBE_S,
    )
    return [ChannelState(**row) for row in rows]


async def open_circuit(
    database: Executor, account_id: int, channel: str, first_s: float, longest_s: float
) -> bool:
    """Note that a channel fails: nobody tries for `first_s`, each time twice as long.

    False where somebody has just noted it.
    """
    row = await database.row(
        """
        INSERT INTO gateway_outage AS o (account_id, channel, until)
        VALUES ($1, $2, clock() + $3 * interval '1 second')
        ON CONFLICT (account_id, channel) DO UPDATE
        SET trips = o.trips + 1,
            until = clock() + least($3 * 2 ^ least(o.trips, 20), $4) * interval '1 second',
            probed_at = NULL
        WHERE o.until <= clock()
        RETURNING o.account_id
        """,
        account_id,
        channel,
        first_s,
        longest_s,
    )
    return row is not None


async def try_probe(database: Executor, account_id: int, channel: str) -> bool:
    """Be the one who tries a channel again; False where another one does, or it is too early."""
    row = await database.row(
        """
        UPDATE gateway_outage
        SET probed_at = clock()
        WHERE account_id = $1 AND channel = $2 AND until <= clock()
            AND coalesce(probed_at <= clock() - $3 * interval '1 second', true)
        RETURNING account_id
        """,
        account_id,
        channel,
        _PROBE_S,
    )
    return row is not None


async def close_circuit(database: Executor, account_id: int, channel: str) -> None:
    """Note that a channel works."""
    await database.fetch(
        "DELETE FROM gateway_outage WHERE account_id = $1 AND channel = $2", account_id, channel
    )
