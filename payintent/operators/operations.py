"""Operations on the audit log, operator tokens and identities."""

import unicodedata
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar
from uuid import UUID

from payintent.core import access as api_key
from payintent.core.access import FIRST_OPERATORS, TOKEN_DAYS, TOKEN_DAYS_MAX, Role
from payintent.core.errors import (
    BadRequestError,
    ConflictError,
    ErrorCode,
    NotFoundError,
    RefusedError,
)
from payintent.core.texts import check_text, format_count
from payintent.db.database import Tx
from payintent.operators import audit_store, identities_store, tokens_store
from payintent.operators.audit_store import AuditEntry
from payintent.operators.fields import (
    LIST_LIMIT_MAX,
    ListLimit,
    argument,
    check_list_limit,
    check_merchant,
    check_name,
    option,
    quote_input,
    to_utc,
)
from payintent.operators.identities_store import OperatorIdentityRecord
from payintent.operators.operation import (
    RESERVED_PREFIXES,
    ChangeOperation,
    OperationContext,
    ReadOperation,
)
from payintent.operators.tokens_store import OperatorTokenRecord
from payintent.runtime.id_generator import generate_key_text

_ACTOR_NAME_CHARS_MAX, _ACTION_CHARS_MAX = 200, 100
_PublicId = Annotated[str, argument("The token's public part: the eight characters after op_.")]
_Days = Annotated[int, option("The number of days until the token expires.")]
_IdentityName = Annotated[
    str, argument("The identity's full name, such as oidc:ada@example.com/3f0c9a1b7d2e.")
]


class ListAuditEntries(ReadOperation[list[AuditEntry]], frozen=True, kw_only=True):
    """List audit log entries, newest first."""

    action: ClassVar[str] = "audit.list"
    columns = ("at", "who", "action", "merchant_id", "details", "why")
    merchant_id: Annotated[
        int | None, option("Only entries about this merchant.", name="merchant")
    ] = None
    of: Annotated[
        str | None, option("A subject such as `tax`, or an action such as `tax.set`.")
    ] = None
    who: Annotated[str | None, option("Only entries by this operator.")] = None
    since: Annotated[datetime | None, option("Only entries at or after this time (UTC).")] = None
    until: Annotated[datetime | None, option("Only entries before this time (UTC).")] = None
    before: Annotated[UUID | None, option("The last id on the previous page.")] = None
    limit: ListLimit = 20

    async def read(self, context: OperationContext) -> list[AuditEntry]:
        check_list_limit(self.limit)
        await check_merchant(context.database, self.merchant_id)
        check_text("who", self.who, _ACTOR_NAME_CHARS_MAX)
        check_text("of", self.of, _ACTION_CHARS_MAX)
        return await audit_store.list_entries(
            context.read_database,
            self.before,
            self.limit,
            merchant_id=self.merchant_id,
            action=self.of,
            who=self.who,
            since=to_utc("since", self.since),
            until=to_utc("until", self.until),
        )


@dataclass(frozen=True, slots=True)
class IssuedToken:
    name: str
    role: Role
    expires_at: datetime
    token: str


class IssueOperatorToken(ChangeOperation[IssuedToken], frozen=True, kw_only=True):
    """Issue an operator token. It is shown once, to the approver."""

    action: ClassVar[str] = "operator.issue"
    is_bootstrap: ClassVar[bool] = True
    name: Annotated[str, argument("The operator's name. Names cannot be reused.")]
    role: Annotated[Role, option("The operator's role.")] = Role.VIEWER
    days: _Days = TOKEN_DAYS

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True because a new token creates an operator."""
        return True

    async def changes(self, context: OperationContext) -> list[str]:
        return [
            (
                f"{quote_input(self.name)} becomes an operator with the {self.role} role "
                f"for {format_count(self.days, 'day')}"
            ),
            "the token is shown to the approver, who must pass it on",
        ]

    async def check(self, context: OperationContext) -> None:
        _check_name(self.name)
        _check_days(self.days)
        if await tokens_store.is_name_taken(context.database, self.name):
            raise _name_conflict(self.name)

    async def apply(self, context: OperationContext, tx: Tx) -> IssuedToken:
        """Store the digest of a new token. Only the result contains the token text."""
        if context.actor.role is None and not context.settings.sandbox:
            await self._check_bootstrap(tx)
        token = generate_key_text(api_key.OPERATOR)
        expires_at = await tokens_store.add(
            tx,
            token.public_id,
            context.encryption.digest(token.text),
            name=self.name,
            role=self.role,
            days=self.days,
        )
        if expires_at is None:
            raise _name_conflict(self.name)
        return IssuedToken(self.name, self.role, expires_at, token.text)

    async def _check_bootstrap(self, tx: Tx) -> None:
        """Raise unless this is one of the first two tokens and its role is admin."""
        await tokens_store.lock_table(tx)
        if await tokens_store.count_tokens(tx) >= FIRST_OPERATORS:
            raise RefusedError(
                ErrorCode.FORBIDDEN,
                "without a token, you can issue only the first two tokens",
            )
        if self.role is not Role.ADMIN:
            raise BadRequestError("the first two operators must have the admin role")


class SetRole(ChangeOperation[OperatorTokenRecord], frozen=True, kw_only=True):
    """Change an operator's role."""

    action: ClassVar[str] = "operator.set-role"
    public_id: _PublicId
    role: Annotated[Role, argument("The operator's new role.")]

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return whether the new role has more permissions than the current role."""
        token = await _require_token(context, self.public_id)
        return not token.role.includes(self.role)

    async def changes(self, context: OperationContext) -> list[str]:
        token = await _require_token(context, self.public_id)
        return [f"the role of {quote_input(token.name)} changes from {token.role} to {self.role}"]

    async def check(self, context: OperationContext) -> None:
        await _require_token(context, self.public_id)

    async def apply(self, context: OperationContext, tx: Tx) -> OperatorTokenRecord:
        token = _require_existing(await tokens_store.lock(tx, self.public_id), self.public_id)
        if not token.role.includes(self.role) and not context.is_approved:
            raise ConflictError("the role has just been changed; try again")
        return await tokens_store.set_role(tx, self.public_id, self.role)


class ExtendToken(ChangeOperation[OperatorTokenRecord], frozen=True, kw_only=True):
    """Set a token to expire a number of days from now."""

    action: ClassVar[str] = "operator.extend"
    public_id: _PublicId
    days: _Days = TOKEN_DAYS

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True because an extension is equivalent to a new token."""
        return True

    async def changes(self, context: OperationContext) -> list[str]:
        token = await _require_token(context, self.public_id)
        holder = f"{quote_input(token.name)} ({token.role})"
        return [f"the token of {holder} will expire in {format_count(self.days, 'day')}"]

    async def check(self, context: OperationContext) -> None:
        _check_days(self.days)
        _check_not_revoked(await _require_token(context, self.public_id))

    async def apply(self, context: OperationContext, tx: Tx) -> OperatorTokenRecord:
        token = _require_existing(await tokens_store.lock(tx, self.public_id), self.public_id)
        _check_not_revoked(token)
        return await tokens_store.extend(tx, self.public_id, self.days)


class ReplaceToken(ChangeOperation[IssuedToken], frozen=True, kw_only=True):
    """Replace the token that you are using. The new token is printed once.

    Its name, role and expiry do not change.
    """

    action: ClassVar[str] = "operator.replace"
    needs_role: ClassVar[Role] = Role.VIEWER
    is_destructive: ClassVar[bool] = True

    async def apply(self, context: OperationContext, tx: Tx) -> IssuedToken:
        token = await tokens_store.lock_by_name(tx, context.actor_name)
        if token is None or context.actor.role is None:
            raise NotFoundError("to replace a token, run `operator replace` with this token")
        new_token = generate_key_text(api_key.OPERATOR)
        digest = context.encryption.digest(new_token.text)
        await tokens_store.replace(tx, token.public_id, new_token.public_id, digest)
        return IssuedToken(token.name, token.role, token.expires_at, new_token.text)


class ListOperatorTokens(ReadOperation[list[OperatorTokenRecord]], frozen=True, kw_only=True):
    """List tokens, newest first."""

    action: ClassVar[str] = "operator.list"
    columns = ("public_id", "name", "role", "expires_at", "last_used_at", "revoked_at")
    limit: int = LIST_LIMIT_MAX

    async def read(self, context: OperationContext) -> list[OperatorTokenRecord]:
        check_list_limit(self.limit)
        return await tokens_store.list_tokens(context.database, self.limit)


class RevokeOperatorToken(ChangeOperation[OperatorTokenRecord], frozen=True, kw_only=True):
    """Revoke a token immediately and permanently."""

    action: ClassVar[str] = "operator.revoke"
    is_destructive: ClassVar[bool] = True
    public_id: _PublicId

    async def apply(self, context: OperationContext, tx: Tx) -> OperatorTokenRecord:
        return _require_existing(await tokens_store.revoke(tx, self.public_id), self.public_id)


def _check_name(name: str) -> None:
    check_name("name", name)
    if name != unicodedata.normalize("NFKC", name).strip():
        raise BadRequestError("name must be NFKC-normalized, without leading or trailing spaces")
    for prefix in RESERVED_PREFIXES:
        if name.lower().startswith(prefix):
            raise BadRequestError(f"name must not start with {prefix}")


def _check_days(days: int) -> None:
    if not 1 <= days <= TOKEN_DAYS_MAX:
        raise BadRequestError(f"days must be from 1 to {TOKEN_DAYS_MAX}")


def _check_not_revoked(token: OperatorTokenRecord) -> None:
    if token.revoked_at is not None:
        raise ConflictError("the token is revoked and cannot be extended")


async def _require_token(context: OperationContext, public_id: str) -> OperatorTokenRecord:
    return _require_existing(await tokens_store.get(context.database, public_id), public_id)


def _require_existing(token: OperatorTokenRecord | None, public_id: str) -> OperatorTokenRecord:
    if token is None:
        raise NotFoundError(f"no operator token {quote_input(public_id)}")
    return token


def _name_conflict(name: str) -> RefusedError:
    return ConflictError(
        f"{quote_input(name)} is or was the name of an operator; choose another name"
    )


class ListIdentities(ReadOperation[list[OperatorIdentityRecord]], frozen=True, kw_only=True):
    """List the operators who have signed in with OpenID Connect."""

    action: ClassVar[str] = "operator.identities"
    columns = ("name", "role", "signed_in_at", "expires_at", "blocked_at")
    limit: int = LIST_LIMIT_MAX

    async def read(self, context: OperationContext) -> list[OperatorIdentityRecord]:
        check_list_limit(self.limit)
        return await identities_store.list_identities(context.database, self.limit)


class BlockIdentity(ChangeOperation[OperatorIdentityRecord], frozen=True, kw_only=True):
    """Block an OpenID Connect identity, and end its sessions immediately."""

    action: ClassVar[str] = "operator.block"
    is_destructive: ClassVar[bool] = True
    name: _IdentityName

    async def apply(self, context: OperationContext, tx: Tx) -> OperatorIdentityRecord:
        return _require_identity(await identities_store.block(tx, self.name), self.name)


class UnblockIdentity(ChangeOperation[OperatorIdentityRecord], frozen=True, kw_only=True):
    """Unblock an OpenID Connect identity."""

    action: ClassVar[str] = "operator.unblock"
    name: _IdentityName

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True because this restores an operator's access."""
        return True

    async def changes(self, context: OperationContext) -> list[str]:
        return [
            f"{quote_input(self.name)} can sign in again, with the role from the identity provider"
        ]

    async def check(self, context: OperationContext) -> None:
        _require_identity(await identities_store.get(context.database, self.name), self.name)

    async def apply(self, context: OperationContext, tx: Tx) -> OperatorIdentityRecord:
        """Unblock the identity without restoring its sessions."""
        return _require_identity(await identities_store.unblock(tx, self.name), self.name)


def _require_identity(identity: OperatorIdentityRecord | None, name: str) -> OperatorIdentityRecord:
    if identity is None:
        raise NotFoundError(f"no operator has signed in as {quote_input(name)}")
    return identity
