"""Store batches of new sessions before their gateways are called."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import LiteralString
from uuid import UUID

from payintent.domain.session import Session
from payintent.storage.database import Executor, Tx

_ADD: LiteralString = """
    WITH new AS MATERIALIZED (
        SELECT n.*,
            (SELECT count(*) FROM session e WHERE e.payment_id = n.payment_id) AS earlier
        FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[], $5::text[], $6::text[],
            $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[],
            $13::text[], $14::text[], $15::text[], $16::text[], $17::text[], $18::text[],
            $19::numeric[], $20::text[], $21::timestamptz[], $22::bytea[], $23::int[],
            $24::boolean[])
            AS n (id, payment_id, account_id, payment_method_id, provider, provider_name, kind,
                label, country, chain, token, currency, amount, fee_mode, fee_rate, fee_amount,
                estimated_tax, total_amount, total_minor, return_url, opened_at, token_address,
                token_decimals, token_zero_first)
    ), added AS (
        INSERT INTO session
            (id, payment_id, account_id, payment_method_id, provider, provider_name, kind,
             label, country, chain, token, currency, amount, fee_mode, fee_rate, fee_amount,
             estimated_tax, total_amount, total_minor, return_url, opened_at, inquire_at,
             token_address, token_decimals, token_zero_first, number)
        SELECT id, payment_id, account_id, payment_method_id, provider, provider_name, kind,
            label, country, chain, token, currency, amount, fee_mode, fee_rate, fee_amount,
            estimated_tax, total_amount, total_minor, return_url, opened_at,
            opened_at + $25 * interval '1 second',
            token_address, token_decimals, token_zero_first, earlier + 1
        FROM new
        WHERE earlier < $26
        ON CONFLICT (payment_id) WHERE life = 'opening' DO NOTHING
        RETURNING id
    )
    SELECT new.payment_id, new.earlier, added.id IS NOT NULL AS is_stored
    FROM new
    LEFT JOIN added USING (id)
"""


@dataclass(frozen=True, slots=True)
class AddedSession:
    payment_id: UUID
    earlier: int  # number of sessions that the payment had before
    is_stored: bool


async def add(
    tx: Tx, sessions: Sequence[Session], first_inquiry_s: float, number_max: int
) -> list[AddedSession]:
    """Store sessions of different, locked payments as `opening`.

    A session is not stored if its payment has an opening session or has had `number_max` sessions.
    """
    quotes = [session.quote for session in sessions]
    prices = [quote.price for quote in quotes]
    tokens = [quote.expected_token for quote in quotes]
    rows = await tx.fetch(
        _ADD,
        [session.id for session in sessions],
        [session.payment_id for session in sessions],
        [quote.account_id for quote in quotes],
        [quote.payment_method_id for quote in quotes],
        [quote.provider for quote in quotes],
        [quote.provider_name for quote in quotes],
        [quote.kind for quote in quotes],
        [quote.label for quote in quotes],
        [quote.country for quote in quotes],
        [quote.chain for quote in quotes],
        [quote.token for quote in quotes],
        [price.currency for price in prices],
        [price.amount for price in prices],
        [price.fee_mode for price in prices],
        [price.fee_rate for price in prices],
        [price.fee_amount for price in prices],
        [price.estimated_tax for price in prices],
        [price.total_amount for price in prices],
        [quote.total_minor for quote in quotes],
        [session.return_url for session in sessions],
        [session.opened_at for session in sessions],
        [token and token.address for token in tokens],
        [token and token.decimals for token in tokens],
        [token and token.approve_zero_first for token in tokens],
        first_inquiry_s,
        number_max,
    )
    return [AddedSession(row["payment_id"], row["earlier"], row["is_stored"]) for row in rows]


async def count_batch(database: Executor, payment_ids: Sequence[UUID]) -> list[int]:
    """Count the sessions of each payment, in the order of `payment_ids`."""
    rows = await database.fetch(
        """
        SELECT payment_id, count(*)
        FROM session
        WHERE payment_id = ANY($1::uuid[])
        GROUP BY payment_id
        LIMIT 10000
        """,
        payment_ids,
    )
    counts = {row["payment_id"]: row["count"] for row in rows}
    return [counts.get(payment_id, 0) for payment_id in payment_ids]
