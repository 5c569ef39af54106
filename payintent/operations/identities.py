"""Operators that sign in to the console with OpenID Connect."""

from typing import Annotated, ClassVar

from payintent.domain.errors import NotFoundError
from payintent.operations.base import ChangeOperation, OperationContext, ReadOperation
from payintent.operations.fields import argument
from payintent.operations.validation import LISTED_MAX, check_list_limit, quote_input
from payintent.storage import operator_identities
from payintent.storage.database import Tx
from payintent.storage.operator_identities import OperatorIdentityRecord

_Name = Annotated[str, argument("The full name, such as oidc:ada@example.com/3f0c9a1b7d2e.")]


class ListIdentities(ReadOperation[list[OperatorIdentityRecord]], frozen=True, kw_only=True):
    """List the operators that have signed in with OpenID Connect."""

    action: ClassVar[str] = "operator.identities"
    columns = ("name", "role", "signed_in_at", "expires_at", "blocked_at")
    limit: int = LISTED_MAX

    async def read(self, context: OperationContext) -> list[OperatorIdentityRecord]:
        check_list_limit(self.limit)
        return await operator_identities.list_identities(context.database, self.limit)


class BlockIdentity(ChangeOperation[OperatorIdentityRecord], frozen=True, kw_only=True):
    """Block an OpenID Connect identity, and end its sessions immediately."""

    action: ClassVar[str] = "operator.block"
    is_destructive: ClassVar[bool] = True
    name: _Name

    async def apply(self, context: OperationContext, tx: Tx) -> OperatorIdentityRecord:
        return _require(await operator_identities.block(tx, self.name), self.name)


class UnblockIdentity(ChangeOperation[OperatorIdentityRecord], frozen=True, kw_only=True):
    """Unblock an OpenID Connect identity."""

    action: ClassVar[str] = "operator.unblock"
    name: _Name

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return True: this creates an operator."""
        return True

    async def changes(self, context: OperationContext) -> list[str]:
        return [
            f"{quote_input(self.name)} may sign in again, with the role from the identity provider"
        ]

    async def check(self, context: OperationContext) -> None:
        _require(await operator_identities.get(context.database, self.name), self.name)

    async def apply(self, context: OperationContext, tx: Tx) -> OperatorIdentityRecord:
        """Unblock the identity; its earlier sessions stay ended."""
        return _require(await operator_identities.unblock(tx, self.name), self.name)


def _require(identity: OperatorIdentityRecord | None, name: str) -> OperatorIdentityRecord:
    if identity is None:
        raise NotFoundError(f"nobody has signed in as {quote_input(name)}")
    return identity
