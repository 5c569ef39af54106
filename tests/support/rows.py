"""Thousands of payments, written without the service, with any status and in any order."""

from tests.support.world import World

_INSERT = """
INSERT INTO payment
    (id, merchant_id, checkout_id, status, currency, amount, amount_text, payer_uid,
     include_pegged_assets, metadata, tax_manager, session_id, receipt_id, failure_reason,
     refunded_amount, expires_at, paid_at, failed_at, expired_at, cancelled_at, created_at,
     updated_at)
SELECT
    (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '70008'
        || left(md5(random()::text), 15))::uuid,
    $1::bigint, 'cs_' || lpad(n::text, 16, '0'), status, currency, 1, '1', payer, true, '{}',
    'NONE',
    CASE WHEN status IN ('PENDING', 'EXPIRED', 'CANCELLED') THEN NULL ELSE $2::uuid END,
    CASE WHEN paid THEN gen_random_uuid() END, CASE status WHEN 'FAILED' THEN 'DECLINED' END,
    CASE status WHEN 'REFUNDED' THEN 1 WHEN 'PARTIALLY_REFUNDED' THEN 0.5 ELSE 0 END,
    at + interval '100 years', CASE WHEN paid THEN at END, CASE status WHEN 'FAILED' THEN at END,
    CASE status WHEN 'EXPIRED' THEN at END, CASE status WHEN 'CANCELLED' THEN at END, at, at
FROM (
    SELECT n, timestamptz '2026-11-21 08:00:00+00' + n / $4::int * interval '1 ms' AS at,
        ($5::text[])[1 + n % cardinality($5::text[])] AS status,
        ($6::text[])[1 + n / 7 % cardinality($6::text[])] AS currency,
        ($7::text[])[1 + n / 3 % cardinality($7::text[])] AS payer
    FROM generate_series(0, $3::int - 1) AS n
) one
CROSS JOIN LATERAL (SELECT status IN ('PAID', 'PARTIALLY_REFUNDED', 'REFUNDED') AS paid) p
"""

STATUSES = (
    "PENDING",
    "PROCESSING",
    "PAID",
    "FAILED",
    "EXPIRED",
    "CANCELLED",
    "PARTIALLY_REFUNDED",
    "REFUNDED",
)


async def write_payments(
    world: World,
    count: int,
    *,
    merchant_id: int | None = None,
    statuses: tuple[str, ...] = STATUSES,
    currencies: tuple[str, ...] = ("USD", "THB", "JPY", "TWD", "IDR", "PHP", "USDT", "NATIVED"),
    payers: tuple[str, ...] = ("ann", "bob", "eve"),
    at_once: int = 1,
) -> None:
    """Write payments, `at_once` of them in each millisecond from 2026-11-21T08:00:00Z on."""
    selected = await world.create()
    session_id = (await world.select(selected)).session.id
    await world.rows(
        "UPDATE payment SET merchant_id = 0 WHERE id = $1", selected.id
    )  # without an owner
    await world.rows(
        _INSERT,
        merchant_id or world.merchant_id,
        session_id,
        count,
        at_once,
        list(statuses),
        list(currencies),
        list(payers),
    )
