"""Change markers of checkouts, for pages that wait for an update."""

from collections.abc import Sequence
from uuid import UUID

from payintent.storage.database import Executor


async def change_markers(database: Executor, payment_ids: Sequence[UUID]) -> dict[UUID, str]:
    """Return a marker for each payment that changes whenever its checkout page changes.

    It contains the payment's version, the session's status, and the session's transfers on a chain.
    The chain's head is included only if there is a transfer, because it changes the confirmations.
    """
    rows = await database.fetch(
        """
        SELECT p.id, concat_ws('/', p.version, s.life, s.declines, h.states, g.seen,
            CASE WHEN g.seen IS NOT NULL THEN k.head END) AS mark
        FROM payment p
        LEFT JOIN session s ON s.id = p.session_id
        LEFT JOIN chain_cursor k ON k.chain = s.chain
        LEFT JOIN LATERAL (
            SELECT string_agg(encode(tx_hash, 'hex') || state || final, ',' ORDER BY tx_hash)
                AS states
            FROM chain_hint
            WHERE session_id = s.id AND s.chain IS NOT NULL
        ) h ON true
        LEFT JOIN LATERAL (
            SELECT string_agg(encode(tx_hash, 'hex') || (gone_at IS NULL), ',' ORDER BY tx_hash)
                AS seen
            FROM chain_sighting
            WHERE session_id = s.id AND s.chain IS NOT NULL
        ) g ON true
        WHERE p.id = ANY($1::uuid[])
        """,
        payment_ids,
    )
    return {row["id"]: row["mark"] for row in rows}
