"""What an operation is, who performs it, and with what."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.operator import Role
from payintent.encryption import Encryption
from payintent.id_generator import IdGenerator
from payintent.operations.json_values import to_json_value
from payintent.storage import audit
from payintent.storage.database import Database, Tx

R = TypeVar("R")
T = TypeVar("T")
#: What the audit log calls whoever works at a terminal begins so; no token's name does.
TERMINAL = "cli:"
#: Names that begin so are no token's: of terminals, of merchants that ask, of our own rules.
NOBODYS = (TERMINAL, "merchant:", "policy:")


@dataclass(frozen=True, slots=True)
class Actor:
    """Who does something, and why; outside the sandbox a change needs a reason.

    `role` is that of an operator's token; without a token, at a terminal, there is none.
    """

    who: str
    why: str = ""
    role: Role | None = None
    over_http: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationContext:
    """What operations work with."""

    database: Database
    encryption: Encryption
    id_generator: IdGenerator
    sandbox: bool
    providers: frozenset[str]  # that this installation has adapters for
    #: Names of the credentials that an account of each provider must hold.
    credentials: Mapping[str, frozenset[str]]
    #: Providers that do a refund once for one id, however often they are told.
    repeatable_refunds: frozenset[str]
    countries: Mapping[str, frozenset[str] | None]  # by provider: where it pays; None: all
    origins: Mapping[str, frozenset[str]]  # by provider: where its accounts may be
    endpoints: Mapping[str, Sequence[str]] = field(repr=False)  # by chain; they may hold keys
    operations: Mapping[str, "type[ReadOperation[Any] | ChangeOperation[Any]]"] = field(repr=False)
    actor: Actor = Actor("")
    approved_by: str | None = None  # the second person, where the operation needed one

    @property
    def who(self) -> str:
        """Name who performs the operation, or who proposed it."""
        return self.actor.who

    @property
    def is_unbound(self) -> bool:
        """Tell whether the actor may do everything alone: a terminal of the sandbox."""
        return self.sandbox and self.actor.role is None

    @property
    def is_agreed(self) -> bool:
        """Tell whether nobody else has to agree any more."""
        return self.is_unbound or self.approved_by is not None


class ReadOperation(
    msgspec.Struct, Generic[R], frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """An operation that changes nothing; its fields are what it needs to know."""

    action: ClassVar[str]
    needs_role: ClassVar[Role] = Role.VIEWER  # the least that may do it
    #: What a table of a list shows of each record; JSON shows all.
    columns: ClassVar[tuple[str, ...]] = ()

    def required_role(self) -> Role:
        """Give the least role that may do it with these fields."""
        return self.needs_role

    async def read(self, context: OperationContext) -> R:
        """Give what was asked for."""
        raise NotImplementedError


class ChangeOperation(
    msgspec.Struct, Generic[R], frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """An operation that changes something; its fields are what is changed."""

    action: ClassVar[str]
    needs_role: ClassVar[Role] = Role.ADMIN  # the least that may do it
    #: What a table of a list shows of each record; JSON shows all.
    columns: ClassVar[tuple[str, ...]] = ()
    #: Whether a terminal without a token may try it outside the sandbox; `apply` decides.
    is_bootstrap: ClassVar[bool] = False
    #: Fields that the audit log must not hold.
    hidden: ClassVar[frozenset[str]] = frozenset()

    def required_role(self) -> Role:
        """Give the least role that may do it with these fields."""
        return self.needs_role

    async def needs_approval(self, context: OperationContext) -> bool:
        """Tell whether another person must approve: it can redirect money or show a secret."""
        del context
        return False

    async def changes(self, context: OperationContext) -> list[str]:
        """Say in words what would change, for the person who approves; never a secret."""
        del context
        shown = details(self)
        return [f"{name}: {value}" for name, value in shown.items()] or [self.action]

    async def check(self, context: OperationContext) -> None:
        """Refuse what can be refused without a transaction; here the network may be asked."""

    async def apply(self, context: OperationContext, tx: Tx) -> R:
        """Make the change."""
        raise NotImplementedError

    def merchant_id_of(self, result: R) -> int | None:
        """Name the merchant that the change is about, if it is about one."""
        del result
        return getattr(self, "merchant_id", None)

    def audit_details(self, result: R) -> Mapping[str, object]:
        """Give what the audit log holds of the result, beside the fields."""
        del result
        return {}


class BatchOperation(ChangeOperation[list[T]], Generic[T], frozen=True, kw_only=True):
    """A change of any number of rows, in transactions of bounded size with an audit record each.

    Nobody else has to approve it. Where it breaks off, the batches before are done.
    """

    def following(self, batch: Sequence[T]) -> "BatchOperation[T] | None":
        """Give what does the next batch, once this one has done `batch`; None after the last."""
        raise NotImplementedError


async def run(
    context: OperationContext, tx: Tx, change: ChangeOperation[R], noted: Mapping[str, object]
) -> R:
    """Apply a change and write its audit record, with what else is `noted`."""
    result = await change.apply(context, tx)
    entry = audit.NewAuditEntry(
        id=context.id_generator.new_id(),
        who=context.who,
        why=context.actor.why,
        action=change.action,
        merchant_id=change.merchant_id_of(result),
        details=details(change)
        | to_json_value(change.audit_details(result))
        | to_json_value(noted),
    )
    await audit.add(tx, entry)
    return result


def details(change: ChangeOperation[Any]) -> dict[str, Any]:
    """Give a change's fields as the audit log holds them: without those that are hidden."""
    return {
        name: "(hidden)" if name in change.hidden else to_json_value(value)
        for name in change.__struct_fields__
        if (value := getattr(change, name)) is not None
    }


def check_role(
    context: OperationContext, operation: ReadOperation[Any] | ChangeOperation[Any]
) -> None:
    """Refuse (`FORBIDDEN`) an operation that the actor's role does not include."""
    role, required = context.actor.role, operation.required_role()
    if role is None:
        if not context.sandbox:
            raise RefusedError(
                ErrorCode.FORBIDDEN, "outside the sandbox a terminal needs an operator's token"
            )
    elif not role.includes(required):
        raise RefusedError(
            ErrorCode.FORBIDDEN,
            f"{operation.action} needs the role {required}; {context.who} is {role}",
        )
