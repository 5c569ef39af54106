"""Issue, list and rotate the secrets that sign webhooks. They are stored encrypted."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar
from uuid import UUID

from payintent.core.errors import BadRequestError
from payintent.db.database import Executor, Tx
from payintent.db.encryption_keys import ensure_writing_key
from payintent.merchants.model import SIGNING_SECRETS_MAX, encode_secret
from payintent.merchants.store import require_merchant
from payintent.operators.fields import LIST_LIMIT_MAX, MerchantId, option
from payintent.operators.operation import ChangeOperation, OperationContext, ReadOperation
from payintent.runtime.encryption import make_callback_secret_context

_SECRET_BYTES = 32
_OVERLAP_DEFAULT_S = 24 * 3600
_OVERLAP_MAX_S = 7 * 24 * 3600


@dataclass(frozen=True, slots=True)
class CallbackSecretRecord:
    id: UUID
    sealed: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackSecretTimes:
    """The creation and expiry times of a callback secret, without the secret itself."""

    id: UUID
    created_at: datetime
    expires_at: datetime | None  # None if valid until replaced
    signs: bool


async def list_secret_times(
    database: Executor, merchant_id: int, limit: int
) -> list[CallbackSecretTimes]:
    """List a merchant's secrets, newest first."""
    rows = await database.fetch(
        """
        SELECT id, created_at, expires_at, coalesce(expires_at, 'infinity') > clock() AS signs
        FROM callback_secret
        WHERE merchant_id = $1
        ORDER BY created_at DESC, id DESC
        LIMIT $2
        """,
        merchant_id,
        limit,
    )
    return [CallbackSecretTimes(**row) for row in rows]


async def retire_secrets(tx: Tx, merchant_id: int, overlap_s: int) -> None:
    """Make the current secrets expire in `overlap_s` seconds, unless they expire earlier.

    Secrets that will no longer be among the newest `SIGNING_SECRETS_MAX` expire now, because they
    will no longer sign webhooks.
    """
    await tx.fetch(
        """
        UPDATE callback_secret s
        SET expires_at = least(s.expires_at,
            clock() + CASE WHEN v.number < $3 THEN $2 ELSE 0 END * interval '1 second')
        FROM (
            SELECT id, row_number() OVER (ORDER BY created_at DESC, id DESC) AS number
            FROM callback_secret
            WHERE merchant_id = $1 AND coalesce(expires_at, 'infinity') > clock()
        ) v
        WHERE s.id = v.id
        """,
        merchant_id,
        overlap_s,
        SIGNING_SECRETS_MAX,
    )


async def list_secrets(
    database: Executor, merchant_ids: Sequence[int], limit: int
) -> dict[int, list[CallbackSecretRecord]]:
    """List each merchant's valid secrets, newest first, up to `limit` per merchant."""
    rows = await database.fetch(
        """
        SELECT m.id AS merchant_id, s.id, s.sealed
        FROM unnest($1::bigint[]) AS m (id)
        CROSS JOIN LATERAL (
            SELECT id, sealed, created_at
            FROM callback_secret
            WHERE merchant_id = m.id AND coalesce(expires_at, 'infinity') > clock()
            ORDER BY created_at DESC, id DESC
            LIMIT $2
        ) s
        ORDER BY s.created_at DESC, s.id DESC
        LIMIT 10000
        """,
        merchant_ids,
        limit,
    )
    by_merchant: dict[int, list[CallbackSecretRecord]] = {}
    for row in rows:
        secret = CallbackSecretRecord(row["id"], row["sealed"])
        by_merchant.setdefault(row["merchant_id"], []).append(secret)
    return by_merchant


async def add_callback_secret(context: OperationContext, tx: Tx, merchant_id: int) -> str:
    """Encrypt and store a new secret; return its text (`whsec_…`), which is shown only once."""
    secret_id = tx.id_generator.new_id()
    secret = generate_secret()
    await tx.fetch(
        "INSERT INTO callback_secret (id, merchant_id, sealed) VALUES ($1, $2, $3)",
        secret_id,
        merchant_id,
        context.encryption.encrypt(secret, make_callback_secret_context(merchant_id, secret_id)),
    )
    return encode_secret(secret)


def generate_secret() -> bytes:
    return secrets.token_bytes(_SECRET_BYTES)


@dataclass(frozen=True, slots=True)
class IssuedCallbackSecret:
    id: int  # the merchant's id
    callback_secret: str


class RotateCallbackSecret(ChangeOperation[IssuedCallbackSecret], frozen=True, kw_only=True):
    """Add a callback secret, which is shown only once.

    During the overlap, webhooks are also signed with the previous secrets.
    """

    action: ClassVar[str] = "merchant.rotate-secret"
    is_destructive: ClassVar[bool] = True
    merchant_id: MerchantId
    overlap_s: Annotated[
        int, option("Seconds for which webhooks are also signed with the previous secrets.")
    ] = _OVERLAP_DEFAULT_S

    async def needs_approval(self, context: OperationContext) -> bool:
        """Require approval over HTTP, so that a stolen token is not enough to reveal a secret."""
        return context.actor.uses_http

    async def changes(self, context: OperationContext) -> list[str]:
        merchant = await require_merchant(context.database, self.merchant_id)
        return [
            f"{merchant.title} receives a new callback secret",
            f"webhooks are also signed with the previous secrets for {self.overlap_s} seconds",
            "the secret is shown to the approver, who must pass it on",
        ]

    async def check(self, context: OperationContext) -> None:
        if not 0 <= self.overlap_s <= _OVERLAP_MAX_S:
            raise BadRequestError(f"overlap_s must be from 0 to {_OVERLAP_MAX_S} seconds")
        await require_merchant(context.database, self.merchant_id)

    async def apply(self, context: OperationContext, tx: Tx) -> IssuedCallbackSecret:
        await ensure_writing_key(tx, context.encryption)
        await retire_secrets(tx, self.merchant_id, self.overlap_s)
        secret = await add_callback_secret(context, tx, self.merchant_id)
        return IssuedCallbackSecret(self.merchant_id, secret)


class ListCallbackSecrets(ReadOperation[list[CallbackSecretTimes]], frozen=True, kw_only=True):
    """List a merchant's callback secrets with their creation and expiry times."""

    action: ClassVar[str] = "merchant.secrets"
    columns = ("id", "created_at", "expires_at", "signs")
    merchant_id: MerchantId

    async def read(self, context: OperationContext) -> list[CallbackSecretTimes]:
        await require_merchant(context.database, self.merchant_id)
        return await list_secret_times(context.database, self.merchant_id, LIST_LIMIT_MAX)
