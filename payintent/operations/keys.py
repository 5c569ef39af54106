"""Operations that issue, list and revoke merchants' API keys."""

import secrets as chance
from dataclasses import dataclass
from typing import Annotated, ClassVar

from payintent.domain import api_key, ids
from payintent.domain.errors import NotFoundError
from payintent.operations.base import ChangeOperation, OperationContext, ReadOperation
from payintent.operations.fields import MerchantId, Purpose, argument, option
from payintent.operations.test_side import ensure_test_side
from payintent.operations.validation import (
    LISTED_MAX,
    check_list_limit,
    check_name,
    quote_input,
    require_merchant,
)
from payintent.storage import api_keys
from payintent.storage.api_keys import ApiKey
from payintent.storage.database import Tx


@dataclass(frozen=True, slots=True)
class IssuedApiKey:
    merchant_id: int
    api_key: str
    callback_secret: str | None = None  # of a test side that was created for the key


class IssueApiKey(ChangeOperation[IssuedApiKey], frozen=True, kw_only=True):
    """Issue an API key and show it, only once."""

    action: ClassVar[str] = "key.issue"
    merchant_id: MerchantId
    name: Purpose = ""
    test: Annotated[bool, option("A test key, sk_test_…; the test side is created if needed.")] = (
        False
    )

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True over HTTP, so that a stolen token is not enough to obtain a key."""
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
        return await api_keys.list_keys(context.database, self.merchant_id, self.limit)


class RevokeApiKey(ChangeOperation[ApiKey], frozen=True, kw_only=True):
    """Revoke a key permanently; it is rejected everywhere within a second."""

    action: ClassVar[str] = "key.revoke"
    is_destructive: ClassVar[bool] = True
    public_id: Annotated[
        str, argument("The public part: the eight characters after sk_live_ or sk_test_.")
    ]

    async def apply(self, context: OperationContext, tx: Tx) -> ApiKey:
        key = await api_keys.revoke_key(tx, self.public_id)
        if key is None:
            raise NotFoundError(f"no key {quote_input(self.public_id)}")
        return key


async def issue_api_key(context: OperationContext, tx: Tx, merchant_id: int, name: str) -> str:
    """Add a key, of which only the digest is stored; return its text."""
    merchant = await require_merchant(tx, merchant_id)
    key = generate_key_text(api_key.merchant_prefix(merchant.livemode), context.settings.key_mark)
    await api_keys.add_key(
        tx, key.public_id, merchant_id, name, context.encryption.digest(key.text)
    )
    return key.text


def generate_key_text(prefix: str, mark: str = "") -> api_key.ApiKeyText:
    """Generate a key or token of 256 random bits, with a public part that begins with `mark`."""
    public_id = mark + _base62(api_key.PUBLIC_CHARS - len(mark))
    return api_key.make_api_key(prefix, public_id, _base62(api_key.SECRET_CHARS))


def _base62(length: int) -> str:
    return ids.to_base62(chance.randbelow(62**length), length)
