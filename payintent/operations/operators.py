"""Operator tokens: each belongs to a single person, has a role, and expires."""

import unicodedata
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar

from payintent.domain import api_key
from payintent.domain.errors import (
    BadRequestError,
    ConflictError,
    ErrorCode,
    NotFoundError,
    RefusedError,
)
from payintent.domain.operator import FIRST_OPERATORS, TOKEN_DAYS, TOKEN_DAYS_MAX, Role
from payintent.operations.base import (
    RESERVED_PREFIXES,
    ChangeOperation,
    OperationContext,
    ReadOperation,
)
from payintent.operations.fields import argument, option
from payintent.operations.keys import generate_key_text
from payintent.operations.validation import LISTED_MAX, check_list_limit, check_name, quote_input
from payintent.storage import operator_tokens
from payintent.storage.database import Tx
from payintent.storage.operator_tokens import OperatorTokenRecord


@dataclass(frozen=True, slots=True)
class IssuedToken:
    name: str
    role: Role
    expires_at: datetime
    token: str


_PublicId = Annotated[
    str, argument("The public part of the token: the eight characters after op_.")
]
_Days = Annotated[int, option("Days until the token expires, from now.")]


class IssueOperatorToken(ChangeOperation[IssuedToken], frozen=True, kw_only=True):
    """Issue a token to a person. It is shown once, to the approver."""

    action: ClassVar[str] = "operator.issue"
    is_bootstrap: ClassVar[bool] = True
    name: Annotated[str, argument("The person's name. It cannot be used again.")]
    role: Annotated[Role, option("The role of the operator.")] = Role.VIEWER
    days: _Days = TOKEN_DAYS

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True: a token creates an operator."""
        return True

    async def changes(self, context: OperationContext) -> list[str]:
        return [
            (
                f"{quote_input(self.name)} becomes an operator with the role {self.role}, "
                f"for {self.days} days"
            ),
            "the token is shown to the approver, to be passed on",
        ]

    async def check(self, context: OperationContext) -> None:
        _check_name(self.name)
        _check_days(self.days)
        if await operator_tokens.is_taken(context.database, self.name):
            raise _name_in_use(self.name)

    async def apply(self, context: OperationContext, tx: Tx) -> IssuedToken:
        """Store the digest of a new token. The result is the only place with its text."""
        if context.actor.role is None and not context.settings.sandbox:
            await self._check_first(tx)
        token = generate_key_text(api_key.OPERATOR)
        expires_at = await operator_tokens.add(
            tx,
            operator_tokens.NewToken(
                public_id=token.public_id,
                name=self.name,
                role=self.role,
                days=self.days,
                digest=context.encryption.digest(token.text),
            ),
        )
        if expires_at is None:
            raise _name_in_use(self.name)
        return IssuedToken(self.name, self.role, expires_at, token.text)

    async def _check_first(self, tx: Tx) -> None:
        """Let a terminal without a token issue the first two, so that their holders can approve."""
        await operator_tokens.hold(tx)
        if await operator_tokens.count(tx) >= FIRST_OPERATORS:
            raise RefusedError(
                ErrorCode.FORBIDDEN,
                "a terminal without a token can issue only the first two tokens",
            )
        if self.role is not Role.ADMIN:
            raise BadRequestError("the first two operators must have the role admin")


class SetRole(ChangeOperation[OperatorTokenRecord], frozen=True, kw_only=True):
    """Change the role of an operator."""

    action: ClassVar[str] = "operator.set-role"
    public_id: _PublicId
    role: Annotated[Role, argument("The new role of the operator.")]

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True if the new role has more rights."""
        token = await _require_token(context, self.public_id)
        return not token.role.includes(self.role)

    async def changes(self, context: OperationContext) -> list[str]:
        token = await _require_token(context, self.public_id)
        return [f"{quote_input(token.name)} gets the role {self.role} instead of {token.role}"]

    async def check(self, context: OperationContext) -> None:
        await _require_token(context, self.public_id)

    async def apply(self, context: OperationContext, tx: Tx) -> OperatorTokenRecord:
        token = _require(await operator_tokens.lock(tx, self.public_id), self.public_id)
        if not token.role.includes(self.role) and not context.is_agreed:
            raise ConflictError("the role was changed just now; try again")
        return await operator_tokens.set_role(tx, self.public_id, self.role)


class ExtendToken(ChangeOperation[OperatorTokenRecord], frozen=True, kw_only=True):
    """Extend a token: it expires this number of days from now."""

    action: ClassVar[str] = "operator.extend"
    public_id: _PublicId
    days: _Days = TOKEN_DAYS

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True: an extension is equivalent to a new token."""
        return True

    async def changes(self, context: OperationContext) -> list[str]:
        token = await _require_token(context, self.public_id)
        return [
            f"the token of {quote_input(token.name)}, {token.role}, expires in {self.days} days"
        ]

    async def check(self, context: OperationContext) -> None:
        _check_days(self.days)
        _check_live(await _require_token(context, self.public_id))

    async def apply(self, context: OperationContext, tx: Tx) -> OperatorTokenRecord:
        token = _require(await operator_tokens.lock(tx, self.public_id), self.public_id)
        _check_live(token)
        return await operator_tokens.extend(tx, self.public_id, self.days)


class ReplaceToken(ChangeOperation[IssuedToken], frozen=True, kw_only=True):
    """Replace the token that you use now. The new token is printed once.

    Its name, role and expiry stay the same.
    """

    action: ClassVar[str] = "operator.replace"
    needs_role: ClassVar[Role] = Role.VIEWER
    is_destructive: ClassVar[bool] = True

    async def apply(self, context: OperationContext, tx: Tx) -> IssuedToken:
        token = await operator_tokens.lock_named(tx, context.who)
        if token is None or context.actor.role is None:
            raise NotFoundError("operator replace needs to run with the token that it replaces")
        new = generate_key_text(api_key.OPERATOR)
        digest = context.encryption.digest(new.text)
        await operator_tokens.replace(tx, token.public_id, new.public_id, digest)
        return IssuedToken(token.name, token.role, token.expires_at, new.text)


class ListOperatorTokens(ReadOperation[list[OperatorTokenRecord]], frozen=True, kw_only=True):
    """List tokens, newest first."""

    action: ClassVar[str] = "operator.list"
    columns = ("public_id", "name", "role", "expires_at", "last_used_at", "revoked_at")
    limit: int = LISTED_MAX

    async def read(self, context: OperationContext) -> list[OperatorTokenRecord]:
        check_list_limit(self.limit)
        return await operator_tokens.list_tokens(context.database, self.limit)


class RevokeOperatorToken(ChangeOperation[OperatorTokenRecord], frozen=True, kw_only=True):
    """Revoke a token immediately and permanently."""

    action: ClassVar[str] = "operator.revoke"
    is_destructive: ClassVar[bool] = True
    public_id: _PublicId

    async def apply(self, context: OperationContext, tx: Tx) -> OperatorTokenRecord:
        return _require(await operator_tokens.revoke(tx, self.public_id), self.public_id)


def _check_name(name: str) -> None:
    check_name("name", name)
    if name != unicodedata.normalize("NFKC", name).strip():
        raise BadRequestError("name must be in normalized form (NFKC), without spaces around it")
    for prefix in RESERVED_PREFIXES:
        if name.lower().startswith(prefix):
            raise BadRequestError(f"name must not start with {prefix}")


def _check_days(days: int) -> None:
    if not 1 <= days <= TOKEN_DAYS_MAX:
        raise BadRequestError(f"days must be from 1 to {TOKEN_DAYS_MAX}")


def _check_live(token: OperatorTokenRecord) -> None:
    if token.revoked_at is not None:
        raise ConflictError("the token is revoked and cannot be extended")


async def _require_token(context: OperationContext, public_id: str) -> OperatorTokenRecord:
    return _require(await operator_tokens.get(context.database, public_id), public_id)


def _require(token: OperatorTokenRecord | None, public_id: str) -> OperatorTokenRecord:
    if token is None:
        raise NotFoundError(f"no operator token {quote_input(public_id)}")
    return token


def _name_in_use(name: str) -> RefusedError:
    return ConflictError(
        f"{quote_input(name)} is or was the name of an operator: choose another name"
    )
