"""Operations that issue, list and revoke merchants' API keys."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from payintent.core import access as api_key
from payintent.core.errors import NotFoundError
from payintent.db.database import Tx
from payintent.merchants import keys_store as key_store
from payintent.merchants.keys_store import ApiKey
from payintent.merchants.store import require_merchant
from payintent.merchants.test_side import ensure_test_side
from payintent.operators.fields import (
    LISTED_MAX,
    MerchantId,
    Purpose,
    argument,
    check_list_limit,
    check_name,
    option,
    quote_input,
)
from payintent.operators.operation import (
    Actor,
    ChangeOperation,
    OperationContext,
    ReadOperation,
    run,
)
from payintent.runtime.id_generator import generate_key_text


@dataclass(frozen=True, slots=True)
class IssuedApiKey:
    merchant_id: int
    api_key: str
    callback_secret: str | None = None  # set if a test side was created along with the key


class IssueApiKey(ChangeOperation[IssuedApiKey], frozen=True, kw_only=True):
    """Issue an API key and show it, only once."""

    action: ClassVar[str] = "key.issue"
    merchant_id: MerchantId
    name: Purpose = ""
    test: Annotated[bool, option("A test key, sk_test_…; the test side is created if needed.")] = (
        False
    )

    async def needs_approval(self, context: OperationContext) -> bool:
        """Require approval over HTTP: a stolen token alone must not be enough to obtain a key."""
        return context.actor.over_http

    async def changes(self, context: OperationContext) -> list[str]:
        merchant = await require_merchant(context.database, self.merchant_id)
        kind = "test key" if self.test else "API key"
        return [
            f"{merchant.title} gets a new {kind}"
            + (f", named {quote_input(self.name)}" if self.name else ""),
            "the key is shown to the approver, who must pass it on",
        ]

    async def check(self, context: OperationContext) -> None:
        check_name("name", self.name or "-")
        await require_merchant(context.database, self.merchant_id)

    async def apply(self, context: OperationContext, tx: Tx) -> IssuedApiKey:
        merchant_id, secret = self.merchant_id, None
        if self.test:
            side = await ensure_test_side(context, tx, merchant_id)
            merchant_id, secret = side.merchant_id, side.callback_secret
        key = await issue_api_key(context, tx, merchant_id, self.name)
        return IssuedApiKey(merchant_id, key, secret)


class ListApiKeys(ReadOperation[list[ApiKey]], frozen=True, kw_only=True):
    """List a merchant's keys."""

    action: ClassVar[str] = "key.list"
    columns = ("public_id", "name", "created_at", "last_used_at", "revoked_at")
    merchant_id: MerchantId
    limit: int = LISTED_MAX

    async def read(self, context: OperationContext) -> list[ApiKey]:
        check_list_limit(self.limit)
        await require_merchant(context.database, self.merchant_id)
        return await key_store.list_keys(context.database, self.merchant_id, self.limit)


class RevokeApiKey(ChangeOperation[ApiKey], frozen=True, kw_only=True):
    """Revoke a key permanently; it is rejected everywhere within a second."""

    action: ClassVar[str] = "key.revoke"
    is_destructive: ClassVar[bool] = True
    public_id: Annotated[
        str, argument("The public part: the eight characters after sk_live_ or sk_test_.")
    ]

    async def apply(self, context: OperationContext, tx: Tx) -> ApiKey:
        key = await key_store.revoke_key(tx, self.public_id)
        if key is None:
            raise NotFoundError(f"no key {quote_input(self.public_id)}")
        return key


async def issue_api_key(context: OperationContext, tx: Tx, merchant_id: int, name: str) -> str:
    """Add a key and return its text; only its digest is stored."""
    merchant = await require_merchant(tx, merchant_id)
    key = generate_key_text(api_key.merchant_prefix(merchant.livemode), context.settings.key_mark)
    await key_store.add_key(
        tx, key.public_id, merchant_id, name, context.encryption.digest(key.text)
    )
    return key.text


async def revoke_own_key(
    context: OperationContext, merchant_id: int, actor: Actor, public_id: str
) -> ApiKey:
    """Revoke a merchant's own API key; raise `NOT_FOUND` for any other key."""
    if not (public_id.isascii() and public_id.isalnum()):
        raise NotFoundError("no such key")
    async with context.database.transaction() as tx:
        if not await key_store.is_key_of(tx, merchant_id, public_id):
            raise NotFoundError("no such key")
        return await run(replace(context, actor=actor), tx, RevokeApiKey(public_id=public_id))


def key_actor(merchant_id: int, public_id: str) -> Actor:
    """Return the actor representing a merchant's server, identified by its API key."""
    return Actor(f"merchant:{merchant_id}:{public_id}", "over the API")
