"""Match file lines that contain our order numbers to captures and refunds."""

from collections.abc import Mapping, Sequence

from payintent.db.database import Tx
from payintent.reconciliation.compare_store import DECIMALS

_WINDOW_DAYS = 7


async def resolve_orders(tx: Tx, accounts: Sequence[int], decimals: Mapping[str, int]) -> None:
    """Replace order numbers in the loaded lines with the references of matching records.

    An order number is the reference of a session or capture. A refund line matches a refund of the
    same capture and amount that succeeded within a week of the line. Each line matches a
    different refund. If there are more refunds than lines, the nearest refunds are matched, because
    the others are in other files.
    """
    await tx.fetch("ANALYZE provider_line")
    await tx.fetch(
        _RESOLVE_REFUNDS, accounts, list(decimals), list(decimals.values()), _WINDOW_DAYS
    )
    await tx.fetch(_RESOLVE_PAYMENTS, accounts)


_SELECT_CAPTURE = """
    SELECT c.id, c.reference
    FROM capture c
    WHERE c.account_id = ANY($1::bigint[]) AND c.reference = l.reference
    UNION ALL
    SELECT c.id, c.reference
    FROM session s
    JOIN capture c ON c.session_id = s.id
    WHERE s.reference = l.reference AND s.account_id = ANY($1::bigint[])
    LIMIT 1
"""
_RESOLVE_PAYMENTS = f"""
    UPDATE provider_line line
    SET reference = matched.reference
    FROM (
        SELECT l.number, c.reference
        FROM provider_line l
        JOIN LATERAL ({_SELECT_CAPTURE}) c ON true
        WHERE l.type = 'payment'
    ) matched
    WHERE line.number = matched.number
"""
_RESOLVE_REFUNDS = f"""
    WITH lines AS (
        SELECT l.number, l.amount, l.currency, l.at, c.id AS capture_id,
            row_number() OVER (PARTITION BY l.reference, l.amount ORDER BY l.at, l.number) AS rank
        FROM provider_line l
        LEFT JOIN LATERAL ({_SELECT_CAPTURE}) c ON true
        WHERE l.type = 'refund'
    ), span AS (
        SELECT capture_id, amount, min(at) - make_interval(days => $4) AS since,
            max(at) + make_interval(days => $4) AS until,
            min(at) + (max(at) - min(at)) / 2 AS middle
        FROM lines
        WHERE capture_id IS NOT NULL
        GROUP BY capture_id, amount
    ), ours AS (
        SELECT r.id, span.capture_id, span.amount,
            row_number() OVER (PARTITION BY span.capture_id, span.amount
                ORDER BY abs(extract(epoch FROM r.updated_at - span.middle)), r.id) AS rank
        FROM span
        JOIN refund r ON r.capture_id = span.capture_id
            AND r.updated_at BETWEEN span.since AND span.until
        JOIN capture c ON c.id = r.capture_id
        LEFT JOIN unnest($2::text[], $3::int[]) AS u (currency, decimals) ON u.currency = c.currency
        WHERE r.status = 'SUCCEEDED'
            AND r.amount_minor * 10::numeric ^ -{DECIMALS} = span.amount
    )
    UPDATE provider_line line
    SET our_id = ours.id,
        reference = coalesce(ours.id::text, line.reference || ' ' || line.amount || ' '
            || lines.rank)
    FROM lines
    LEFT JOIN ours ON ours.capture_id = lines.capture_id AND ours.amount = lines.amount
        AND ours.rank = lines.rank
    WHERE line.number = lines.number
"""
