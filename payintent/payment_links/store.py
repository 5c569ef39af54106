"""Store payment links and the payments that use them."""

from dataclasses import dataclass
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from msgspec import Struct

from payintent.db.database import Executor, Row, Tx
from payintent.db.lists import LAST_ID, SCANNED_MAX, build
from payintent.payment_links.model import AmountRange, LinkState, LinkTerms, PaymentLink

_COLUMNS: LiteralString = """
    l.id, l.merchant_id, l.token, l.title, l.description, l.order_id, l.currency, l.amount,
    l.amount_text, l.amount_min, l.amount_max, l.max_uses, l.expires_at, l.return_url,
    l.cancel_url, l.created_by, l.created_at, l.deactivated_at
"""
# Payments are looked up by id with LATERAL, because a join might scan every merchant's payments.
_USES_WITH_STATUS: LiteralString = """
    payment_link_use u
    CROSS JOIN LATERAL (SELECT status FROM payment WHERE id = u.payment_id LIMIT 1) p
"""
# Anyone can create payments with a link, so only its latest payments are counted. Links with a
# limit have at most `USES_MAX` slots.
_USES: LiteralString = (
    "(SELECT count(*) FROM "
    + _USES_WITH_STATUS
    + """
    WHERE u.link_id = l.id AND p.status NOT IN ('FAILED', 'EXPIRED', 'CANCELLED')
        AND u.slot > (SELECT max(slot) FROM payment_link_use WHERE link_id = l.id) - """
    + SCANNED_MAX
    + """
    )::int AS uses, clock() AS now
"""
)
# Checked by the statement that takes a slot, because the database refuses slots of closed links.
_ACCEPTS_PAYMENTS: LiteralString = (
    " l.deactivated_at IS NULL AND coalesce(l.expires_at > clock(), true) "
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPaymentLink:
    id: UUID
    merchant_id: int
    token: str
    key: UUID
    request_hash: bytes
    terms: LinkTerms
    created_by: str


@dataclass(frozen=True, slots=True)
class LinkWithUses:
    link: PaymentLink
    uses: int  # open and paid payments among the latest `SCANNED_MAX`
    now: datetime

    @property
    def state(self) -> LinkState:
        uses_max = self.link.terms.max_uses
        is_used_up = uses_max is not None and self.uses >= uses_max
        return self.link.find_state(self.now, is_used_up=is_used_up)


@dataclass(frozen=True, slots=True)
class FirstLinkRequest:
    """The first request with an idempotency key."""

    link_id: UUID
    request_hash: bytes


class LinkMail(Struct, frozen=True):
    """The stored content of an email. The text is composed when the email is sent."""

    link_id: UUID
    recipient: str
    locale: str


async def add(tx: Tx, link: NewPaymentLink) -> bool:
    """Store a link; return False if its idempotency key is already used."""
    terms = link.terms
    row = await tx.row(
        """
        INSERT INTO payment_link
            (id, merchant_id, token, key, request_hash, title, description, order_id, currency,
             amount, amount_text, amount_min, amount_max, max_uses, expires_at, return_url,
             cancel_url, created_by)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
        ON CONFLICT ON CONSTRAINT payment_link_key_once DO NOTHING
        RETURNING id
        """,
        link.id,
        link.merchant_id,
        link.token,
        link.key,
        link.request_hash,
        terms.title,
        terms.description,
        terms.order_id,
        terms.currency,
        terms.amount,
        terms.amount_text,
        terms.amount_range.minimum,
        terms.amount_range.maximum,
        terms.max_uses,
        terms.expires_at,
        terms.return_url,
        terms.cancel_url,
        link.created_by,
    )
    return row is not None


async def find_first_request(
    database: Executor, merchant_id: int, key: UUID
) -> FirstLinkRequest | None:
    row = await database.row(
        """
        SELECT id AS link_id, request_hash
        FROM payment_link
        WHERE merchant_id = $1 AND key = $2
        """,
        merchant_id,
        key,
    )
    return FirstLinkRequest(**row) if row else None


async def get(database: Executor, link_id: UUID) -> LinkWithUses | None:
    row = await database.row(
        "SELECT " + _COLUMNS + ", " + _USES + " FROM payment_link l WHERE l.id = $1", link_id
    )
    return _to_link_with_uses(row) if row else None


async def find_by_token(database: Executor, token: str) -> PaymentLink | None:
    row = await database.row(
        "SELECT " + _COLUMNS + " FROM payment_link l WHERE l.token = $1", token
    )
    return _to_link(row) if row else None


async def has_free_slot(database: Executor, link_id: UUID) -> bool:
    """Return whether another payment can take a slot."""
    return await database.value(
        """
        SELECT coalesce((SELECT max(slot) FROM payment_link_use WHERE link_id = l.id), 0) < l.slots
            OR EXISTS (
                SELECT
                FROM """
        + _USES_WITH_STATUS
        + """
                WHERE u.link_id = l.id AND p.status IN ('FAILED', 'EXPIRED', 'CANCELLED')
            )
        FROM payment_link l
        WHERE l.id = $1
        """,
        link_id,
    )


async def list_for_merchant(
    database: Executor, merchant_id: int, before: UUID | None, limit: int
) -> list[LinkWithUses]:
    """List a merchant's links, newest first."""
    rows = await database.fetch(
        "SELECT "
        + _COLUMNS
        + ", "
        + _USES
        + """
        FROM payment_link l
        WHERE l.merchant_id = $1 AND l.id < $2
        ORDER BY l.merchant_id DESC, l.id DESC
        LIMIT $3
        """,
        merchant_id,
        before or LAST_ID,
        limit,
    )
    return [_to_link_with_uses(row) for row in rows]


async def deactivate(tx: Tx, link_id: UUID, deactivated_by: str) -> None:
    """Deactivate a link. A repeated call has no effect."""
    await tx.fetch(
        """
        UPDATE payment_link
        SET deactivated_at = clock(), deactivated_by = $2
        WHERE id = $1 AND deactivated_at IS NULL
        """,
        link_id,
        deactivated_by,
    )


async def lock(tx: Tx, link_id: UUID) -> PaymentLink:
    """Lock a link, so that no other payment can take one of its slots until the commit."""
    row = await tx.row(
        "SELECT " + _COLUMNS + " FROM payment_link l WHERE l.id = $1 FOR NO KEY UPDATE", link_id
    )
    assert row is not None  # noqa: S101 - links are never deleted
    return _to_link(row)


async def take_new_slot(tx: Tx, link_id: UUID, payment_id: UUID) -> bool:
    """Take a slot that has never been taken; return False if there is none, or the link is closed.

    The link must be locked.
    """
    row = await tx.row(
        """
        INSERT INTO payment_link_use (link_id, slot, slots, payment_id)
        SELECT l.id, last.slot + 1, l.slots, $2
        FROM payment_link l, LATERAL (
            SELECT coalesce(max(slot), 0) AS slot FROM payment_link_use WHERE link_id = l.id
        ) AS last
        WHERE l.id = $1 AND last.slot < l.slots AND"""
        + _ACCEPTS_PAYMENTS
        + "RETURNING slot",
        link_id,
        payment_id,
    )
    return row is not None


async def take_released_slot(tx: Tx, link_id: UUID, payment_id: UUID) -> bool:
    """Take the slot of a payment that ended unpaid; return False as for `take_new_slot`.

    The link must be locked.
    """
    row = await tx.row(
        """
        UPDATE payment_link_use
        SET payment_id = $2
        FROM payment_link l
        WHERE l.id = $1 AND link_id = l.id AND"""
        + _ACCEPTS_PAYMENTS
        + """AND slot = (
            SELECT u.slot
            FROM """
        + _USES_WITH_STATUS
        + """
            WHERE u.link_id = $1 AND p.status IN ('FAILED', 'EXPIRED', 'CANCELLED')
            ORDER BY u.slot
            LIMIT 1
        )
        RETURNING slot
        """,
        link_id,
        payment_id,
    )
    return row is not None


async def find_token_by_payment(database: Executor, payment_id: UUID) -> str | None:
    """Return the token of the link in which a payment has a slot."""
    row = await database.row(
        """
        SELECT l.token
        FROM payment_link_use u
        JOIN payment_link l ON l.id = u.link_id
        WHERE u.payment_id = $1
        """,
        payment_id,
    )
    return row["token"] if row else None


def _to_link_with_uses(row: Row) -> LinkWithUses:
    return LinkWithUses(_to_link(row), row["uses"], row["now"])


def _to_link(row: Row) -> PaymentLink:
    amount_range = AmountRange(row["amount_min"], row["amount_max"])
    return build(PaymentLink, row, terms=build(LinkTerms, row, amount_range=amount_range))
