"""Operators' tokens: each is one operator's, with a role and an end."""

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
    """An operator's token, shown only now."""

    name: str
    role: Role
    expires_at: datetime
    token: str


_PublicId = Annotated[str, argument("The public part: the eight characters after op_.")]
_Days = Annotated[int, option("How long it works, from now on.")]


class IssueOperatorToken(ChangeOperation[IssuedToken], frozen=True, kw_only=True):
    """Issue a token to a person; the approver is shown it, once."""

    action: ClassVar[str] = "operator.issue"
    is_bootstrap: ClassVar[bool] = True
    name: Annotated[str, argument("The person's name; it can never be used again.")]
    role: Annotated[Role, option("What its holder may do.")] = Role.VIEWER
    days: _Days = TOKEN_DAYS

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True: a token makes one more operator."""
        return True

    async def changes(self, context: OperationContext) -> list[str]:
        return [
            (
                f"{quote_input(self.name)} becomes an operator with the role {self.role}, "
                f"for {self.days} days"
            ),
            "the approver is shown the token, and hands it over",
        ]

    async def check(self, context: OperationContext) -> None:
        _check_name(self.name)
        _check_days(self.days)
        if await operator_tokens.is_taken(context.database, self.name):
            raise _taken(self.name)

    async def apply(self, context: OperationContext, tx: Tx) -> IssuedToken:
        """Store the digest of a new token; the result has the token's text, this once."""
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
            raise _taken(self.name)
        return IssuedToken(self.name, self.role, expires_at, token.text)

    async def _check_first(self, tx: Tx) -> None:
        """Allow a terminal without a token to issue the first two, who can approve each other."""
        await operator_tokens.hold(tx)
        if await operator_tokens.count(tx) >= FIRST_OPERATORS:
            raise RefusedError(
                ErrorCode.FORBIDDEN,
                "a terminal without a token issues the first two operators only",
            )
        if self.role is not Role.ADMIN:
            raise BadRequestError("the first two operators have the role admin")


class SetRole(ChangeOperation[OperatorTokenRecord], frozen=True, kw_only=True):
    """Give an operator another role."""

    action: ClassVar[str] = "operator.set-role"
    public_id: _PublicId
    role: Annotated[Role, argument("What its holder may do.")]

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True if the role is raised."""
        token = await _known(context, self.public_id)
        return not token.role.includes(self.role)

    async def changes(self, context: OperationContext) -> list[str]:
        token = await _known(context, self.public_id)
        return [f"{quote_input(token.name)} gets the role {self.role}; it is {token.role}"]

    async def check(self, context: OperationContext) -> None:
        await _known(context, self.public_id)

    async def apply(self, context: OperationContext, tx: Tx) -> OperatorTokenRecord:
        """Set the role; it applies from the next request on."""
        token = await operator_tokens.lock(tx, self.public_id)
        if token is None:
            raise _unknown(self.public_id)
        if not token.role.includes(self.role) and not context.is_agreed:
            raise ConflictError("the role was changed just now; try again")
        await operator_tokens.set_role(tx, self.public_id, self.role)
        return await _reread(tx, self.public_id)


class ExtendToken(ChangeOperation[OperatorTokenRecord], frozen=True, kw_only=True):
    """Let a token work for so many days from now."""

    action: ClassVar[str] = "operator.extend"
    public_id: _PublicId
    days: _Days = TOKEN_DAYS

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True: it is equivalent to issuing a token."""
        return True

    async def changes(self, context: OperationContext) -> list[str]:
        token = await _known(context, self.public_id)
        return [
            f"the token of {quote_input(token.name)}, {token.role}, works for {self.days} days more"
        ]

    async def check(self, context: OperationContext) -> None:
        _check_days(self.days)
        _check_live(await _known(context, self.public_id))

    async def apply(self, context: OperationContext, tx: Tx) -> OperatorTokenRecord:
        """Extend the token from now; refuse a revoked or expired one."""
        token = await operator_tokens.lock(tx, self.public_id)
        if token is None:
            raise _unknown(self.public_id)
        _check_live(token)
        await operator_tokens.extend(tx, self.public_id, self.days)
        return await _reread(tx, self.public_id)


class ReplaceToken(ChangeOperation[IssuedToken], frozen=True, kw_only=True):
    """Replace the token that you act with by another, which is printed this once.

    The other one has the same name, role and end.
    """

    action: ClassVar[str] = "operator.replace"
    needs_role: ClassVar[Role] = Role.VIEWER
    is_destructive: ClassVar[bool] = True

    async def apply(self, context: OperationContext, tx: Tx) -> IssuedToken:
        token = await operator_tokens.lock_named(tx, context.who)
        if token is None or context.actor.role is None:
            raise NotFoundError("only an operator's token can be replaced, by itself")
        new = generate_key_text(api_key.OPERATOR)
        digest = context.encryption.digest(new.text)
        await operator_tokens.replace(tx, token.public_id, new.public_id, digest)
        return IssuedToken(token.name, token.role, token.expires_at, new.text)


class ListOperatorTokens(ReadOperation[list[OperatorTokenRecord]], frozen=True, kw_only=True):
    """List tokens by their public part."""

    action: ClassVar[str] = "operator.list"
    columns = ("public_id", "name", "role", "expires_at", "last_used_at", "revoked_at")
    limit: int = LISTED_MAX

    async def read(self, context: OperationContext) -> list[OperatorTokenRecord]:
        check_list_limit(self.limit)
        return await operator_tokens.list_tokens(context.database, self.limit)


class RevokeOperatorToken(ChangeOperation[OperatorTokenRecord], frozen=True, kw_only=True):
    """Revoke a token for good, at once."""

    action: ClassVar[str] = "operator.revoke"
    is_destructive: ClassVar[bool] = True
    public_id: _PublicId

    async def apply(self, context: OperationContext, tx: Tx) -> OperatorTokenRecord:
        """Revoke the token; revoking it again keeps the time of the first."""
        token = await operator_tokens.revoke(tx, self.public_id)
        if token is None:
            raise _unknown(self.public_id)
        return token


def _check_name(name: str) -> None:
    check_name("name", name)
    if name != unicodedata.normalize("NFKC", name).strip():
        raise BadRequestError("name has plain letters, and no space at its ends")
    for prefix in RESERVED_PREFIXES:
        if name.lower().startswith(prefix):
            raise BadRequestError(f"a name does not start with {prefix}")


def _check_days(days: int) -> None:
    if not 1 <= days <= TOKEN_DAYS_MAX:
        raise BadRequestError(f"days must be from 1 to {TOKEN_DAYS_MAX}")


def _check_live(token: OperatorTokenRecord) -> None:
    if token.revoked_at is not None:
        raise ConflictError("the token was revoked, which is for good")


async def _known(context: OperationContext, public_id: str) -> OperatorTokenRecord:
    token = await operator_tokens.get(context.database, public_id)
    if token is None:
        raise _unknown(public_id)
    return token


async def _reread(tx: Tx, public_id: str) -> OperatorTokenRecord:
    token = await operator_tokens.get(tx, public_id)
    assert token is not None  # noqa: S101 - tokens are never deleted
    return token


def _unknown(public_id: str) -> RefusedError:
    return NotFoundError(f"no operator token {quote_input(public_id)}")


def _taken(name: str) -> RefusedError:
    return ConflictError(f"{quote_input(name)} is or was an operator's name: take another")
