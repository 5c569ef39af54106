"""Operations, and the context and actor that they run with."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from payintent.config import Settings
from payintent.domain.errors import ConflictError, ErrorCode, RefusedError
from payintent.domain.gateway import Gateway, GatewayCapabilities
from payintent.domain.operator import Role
from payintent.encryption import Encryption
from payintent.operations.json_values import to_json_value
from payintent.storage import audit
from payintent.storage.database import Database, Executor, Tx

R = TypeVar("R")
#: Prefix of an actor's name at a terminal in the audit log; no token's name begins so.
TERMINAL = "cli:"
#: Prefix of an actor's name who signed in by OpenID Connect; no token's name begins so.
IDENTITY = "oidc:"
#: Prefixes that no token's name has: of terminals, of merchants' requests, of our own rules, and of
#: those who sign in by OpenID Connect.
RESERVED_PREFIXES = (TERMINAL, "merchant:", "policy:", IDENTITY)


@dataclass(frozen=True, slots=True)
class Actor:
    """Who runs an operation, and why; outside the sandbox a change needs a reason.

    `role` is that of an operator's token; without a token, at a terminal, there is none.
    """

    who: str
    why: str = ""
    role: Role | None = None
    over_http: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationContext:
    """What an operation may use. Use cases that need more are built from these fields."""

    database: Database
    reading: Executor  # for lists; a replica may lag by a few seconds
    encryption: Encryption
    settings: Settings
    gateways: Mapping[str, Gateway]  # the adapters, by provider
    operations: "Mapping[str, OperationType]"  # by action
    actor: Actor = Actor("")
    approved_by: str | None = None  # the second operator, if the operation needed one

    @property
    def who(self) -> str:
        """Return who runs the operation, or who proposed it."""
        return self.actor.who

    def capabilities(self, provider: str) -> GatewayCapabilities | None:
        """Return the capabilities of a provider's adapter; None if it is not installed."""
        gateway = self.gateways.get(provider)
        return gateway.capabilities if gateway else None

    @property
    def is_unbound(self) -> bool:
        """Tell whether the actor needs no approval for anything: a terminal of the sandbox."""
        return self.settings.sandbox and self.actor.role is None

    @property
    def is_agreed(self) -> bool:
        """Tell whether no further approval is needed."""
        return self.is_unbound or self.approved_by is not None


class Operation(msgspec.Struct, Generic[R], frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An operation whose fields are its arguments, and whose result is an `R`."""

    action: ClassVar[str]
    needs_role: ClassVar[Role]  # the least role that may run it
    #: The columns of a list's table; JSON has all fields.
    columns: ClassVar[tuple[str, ...]] = ()

    def required_role(self) -> Role:
        """Return the least role that may run it with these fields."""
        return self.needs_role


class ReadOperation(Operation[R], Generic[R], frozen=True, kw_only=True):
    """An operation that changes nothing."""

    needs_role: ClassVar[Role] = Role.VIEWER

    async def read(self, context: OperationContext) -> R:
        """Return the result; raise `RefusedError` if the arguments allow none."""
        raise NotImplementedError


class ChangeOperation(Operation[R], Generic[R], frozen=True, kw_only=True):
    """An operation that changes something."""

    needs_role: ClassVar[Role] = Role.ADMIN
    #: Whether a terminal without a token may run it outside the sandbox; `apply` decides.
    is_bootstrap: ClassVar[bool] = False
    #: Whether a terminal asks first: the opposite command does not undo it, or payments stop.
    is_destructive: ClassVar[bool] = False
    #: Whether `foresee` counts what it would do, because it may touch many rows.
    has_dry_run: ClassVar[bool] = False
    #: Fields that are secrets: neither shown again nor in the audit log.
    hidden: ClassVar[frozenset[str]] = frozenset()
    #: Fields that may be shown, but name a person who must not be in the audit log for ever.
    unrecorded: ClassVar[frozenset[str]] = frozenset()

    async def needs_approval(self, context: OperationContext) -> bool:
        """Tell whether a second operator must approve: it can redirect money or show a secret."""
        return False

    async def changes(self, context: OperationContext) -> list[str]:
        """Describe what would change, for the operator who approves; never with a secret."""
        shown = details(self)
        return [f"{name}: {value}" for name, value in shown.items()] or [self.action]

    async def check(self, context: OperationContext) -> None:
        """Refuse what can be refused outside a transaction; only here network calls are allowed."""

    async def foresee(self, context: OperationContext) -> Mapping[str, object]:
        """Count what it would do, and change nothing."""
        raise NotImplementedError

    async def apply(self, context: OperationContext, tx: Tx) -> R:
        """Make the change within the transaction of its audit entry; returns the result."""
        raise NotImplementedError

    def merchant_id_of(self, result: R) -> int | None:
        """Return the merchant that the fields name, or else the result, if any."""
        named: int | None = getattr(self, "merchant_id", None)
        return getattr(result, "merchant_id", None) if named is None else named

    def audit_details(self, result: R) -> Mapping[str, object]:
        """Return what the audit entry has of the result, beside the fields."""
        return {}


AnyOperation = ReadOperation[R] | ChangeOperation[R]
OperationType = type[ReadOperation[Any]] | type[ChangeOperation[Any]]


class BatchOperation(ChangeOperation[R], Generic[R], frozen=True, kw_only=True):
    """A change of any number of rows, in transactions of bounded size, each with an audit entry.

    It needs no approval. Where it fails, the batches before it are done.
    """

    batch_size: ClassVar[int]

    async def total(self, context: OperationContext) -> int:
        """Count the rows of all batches before the first one, to show how far it is."""
        raise NotImplementedError

    def count(self, done: R) -> int:
        """Return how many rows were changed."""
        raise NotImplementedError

    def combine(self, done: R, batch: R) -> R:
        """Return the result of all batches so far, `batch` being the last."""
        raise NotImplementedError

    def following(self, batch: R) -> "BatchOperation[R] | None":
        """Return the operation for the next batch, once `batch` is done; None after the last."""
        raise NotImplementedError


async def run(
    context: OperationContext, tx: Tx, change: ChangeOperation[R], noted: Mapping[str, object]
) -> R:
    """Apply a change and write its audit entry, which also gets `noted`."""
    result = await change.apply(context, tx)
    entry = audit.NewAuditEntry(
        id=tx.id_generator.new_id(),
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
    """Return a change's fields as the audit entry has them: without those that it must not."""
    return {
        name: "(hidden)" if name in change.hidden | change.unrecorded else to_json_value(value)
        for name in change.__struct_fields__
        if (value := getattr(change, name)) is not None
    }


def check_agreed(context: OperationContext, *, needs_approval: bool) -> None:
    """Raise `CONFLICT` if an operation needs a second person only since it was submitted."""
    if needs_approval and not context.is_agreed:
        raise ConflictError("this was changed just now; try again")


def check_role(context: OperationContext, operation: Operation[Any]) -> None:
    """Raise `FORBIDDEN` for an operation that the actor's role does not include."""
    role, required = context.actor.role, operation.required_role()
    if role is None:
        if not context.settings.sandbox:
            raise RefusedError(
                ErrorCode.FORBIDDEN,
                "outside the sandbox a terminal needs an operator's token,"
                " in PAYINTENT_OPERATOR_TOKEN",
            )
    elif not role.includes(required):
        raise RefusedError(
            ErrorCode.FORBIDDEN,
            f"{operation.action} needs the role {required}; {context.who} is {role}",
        )
