"""Operations on merchants' API keys and rate limits."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Generic, TypeVar

from payintent.core import access as api_key
from payintent.core.access import RateLimitClass
from payintent.core.errors import BadRequestError, NotFoundError
from payintent.db.database import Executor, Tx
from payintent.merchants import access_store
from payintent.merchants.access_store import ApiKey, RateLimitSetting
from payintent.merchants.provisioning import ensure_test_side
from payintent.merchants.store import require_merchant
from payintent.operators.fields import (
    LIST_LIMIT_MAX,
    MerchantFilter,
    MerchantId,
    Purpose,
    argument,
    check_list_limit,
    check_merchant,
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
    callback_secret: str | None = None  # set if a test merchant was created along with the key


class IssueApiKey(ChangeOperation[IssuedApiKey], frozen=True, kw_only=True):
    """Issue an API key, which is shown only once."""

    action: ClassVar[str] = "key.issue"
    merchant_id: MerchantId
    name: Purpose = ""
    test: Annotated[
        bool, option("Issue a test key (sk_test_…). Creates the test merchant if necessary.")
    ] = False

    async def needs_approval(self, context: OperationContext) -> bool:
        """Require approval over HTTP, so that a stolen token is not enough to reveal a key."""
        return context.actor.uses_http

    async def changes(self, context: OperationContext) -> list[str]:
        merchant = await require_merchant(context.database, self.merchant_id)
        key_type = "test key" if self.test else "API key"
        name = f", named {quote_input(self.name)}" if self.name else ""
        return [
            f"{merchant.title} receives a new {key_type}{name}",
            "the key is shown to the approver, who must pass it on",
        ]

    async def check(self, context: OperationContext) -> None:
        check_name("name", self.name or "-")
        await require_merchant(context.database, self.merchant_id)

    async def apply(self, context: OperationContext, tx: Tx) -> IssuedApiKey:
        merchant_id, secret = self.merchant_id, None
        if self.test:
            test_side = await ensure_test_side(context, tx, merchant_id)
            merchant_id, secret = test_side.merchant_id, test_side.callback_secret
        key = await issue_api_key(context, tx, merchant_id, self.name)
        return IssuedApiKey(merchant_id, key, secret)


class ListApiKeys(ReadOperation[list[ApiKey]], frozen=True, kw_only=True):
    """List a merchant's keys."""

    action: ClassVar[str] = "key.list"
    columns = ("public_id", "name", "created_at", "last_used_at", "revoked_at")
    merchant_id: MerchantId
    limit: int = LIST_LIMIT_MAX

    async def read(self, context: OperationContext) -> list[ApiKey]:
        check_list_limit(self.limit)
        await require_merchant(context.database, self.merchant_id)
        return await access_store.list_keys(context.database, self.merchant_id, self.limit)


class RevokeApiKey(ChangeOperation[ApiKey], frozen=True, kw_only=True):
    """Revoke a key permanently. All processes reject it within a second."""

    action: ClassVar[str] = "key.revoke"
    is_destructive: ClassVar[bool] = True
    public_id: Annotated[
        str, argument("The public part: the eight characters after sk_live_ or sk_test_.")
    ]

    async def apply(self, context: OperationContext, tx: Tx) -> ApiKey:
        key = await access_store.revoke_key(tx, self.public_id)
        if key is None:
            raise NotFoundError(f"no key {quote_input(self.public_id)}")
        return key


async def issue_api_key(context: OperationContext, tx: Tx, merchant_id: int, name: str) -> str:
    """Add a key and return it. Only its digest is stored."""
    merchant = await require_merchant(tx, merchant_id)
    key = generate_key_text(
        api_key.get_merchant_prefix(merchant.livemode), context.settings.key_mark
    )
    await access_store.add_key(
        tx, key.public_id, merchant_id, name, context.encryption.digest(key.text)
    )
    return key.text


async def list_own_keys(database: Executor, merchant_id: int) -> list[ApiKey]:
    """List a merchant's latest 1,000 keys, newest first."""
    return await access_store.list_keys(database, merchant_id, LIST_LIMIT_MAX)


async def revoke_own_key(
    context: OperationContext, merchant_id: int, actor: Actor, public_id: str
) -> ApiKey:
    """Revoke an API key of this merchant. Raises `NOT_FOUND` for any other key."""
    if not (public_id.isascii() and public_id.isalnum()):
        raise NotFoundError("no such key")
    async with context.database.transaction() as tx:
        if not await access_store.merchant_owns_key(tx, merchant_id, public_id):
            raise NotFoundError("no such key")
        return await run(replace(context, actor=actor), tx, RevokeApiKey(public_id=public_id))


def key_actor(merchant_id: int, public_id: str) -> Actor:
    """Return the actor for changes that a merchant makes over the API with a key."""
    return Actor(f"merchant:{merchant_id}:{public_id}", "over the API")


_PER_S_MAX, _BURST_MAX = 1_000_000, 10_000_000


R = TypeVar("R")


class _RateLimitChange(ChangeOperation[R], Generic[R], frozen=True, kw_only=True):
    merchant_id: MerchantId
    kind: Annotated[RateLimitClass, argument("`create`: new payments; `read`: all other calls.")]

    async def check(self, context: OperationContext) -> None:
        await require_merchant(context.database, self.merchant_id)


class SetRateLimit(_RateLimitChange[RateLimitSetting], frozen=True, kw_only=True):
    """Set a merchant's rate limit. It takes effect within a second."""

    action: ClassVar[str] = "limit.set"
    per_s: Annotated[int, option("Requests per second.")]
    burst: Annotated[int | None, option("Requests in a burst. Default: twice `per_s`.")] = None

    async def check(self, context: OperationContext) -> None:
        await super().check(context)
        if not 1 <= self.per_s <= _PER_S_MAX:
            raise BadRequestError(f"per_s must be from 1 to {_PER_S_MAX}")
        if self.burst is not None and not 1 <= self.burst <= _BURST_MAX:
            raise BadRequestError(f"burst must be from 1 to {_BURST_MAX}")

    async def apply(self, context: OperationContext, tx: Tx) -> RateLimitSetting:
        limit = RateLimitSetting(
            merchant_id=self.merchant_id,
            kind=self.kind,
            per_s=self.per_s,
            burst=2 * self.per_s if self.burst is None else self.burst,
        )
        await access_store.set_limit(tx, limit)
        return limit


class ListRateLimits(ReadOperation[list[RateLimitSetting]], frozen=True, kw_only=True):
    """List the merchants that have their own limits. All other merchants have the defaults."""

    action: ClassVar[str] = "limit.list"
    columns = ("merchant_id", "kind", "per_s", "burst")
    merchant_id: MerchantFilter = None
    limit: int = LIST_LIMIT_MAX

    async def read(self, context: OperationContext) -> list[RateLimitSetting]:
        check_list_limit(self.limit)
        await check_merchant(context.database, self.merchant_id)
        return await access_store.list_limits(context.database, self.merchant_id, self.limit)


class ClearRateLimit(_RateLimitChange[None], frozen=True, kw_only=True):
    """Remove a merchant's own limit, so that the default applies."""

    action: ClassVar[str] = "limit.clear"
    is_destructive: ClassVar[bool] = True

    async def apply(self, context: OperationContext, tx: Tx) -> None:
        if not await access_store.clear_limit(tx, self.merchant_id, self.kind):
            raise NotFoundError(f"merchant {self.merchant_id} has no {self.kind} limit")
