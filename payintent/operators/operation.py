"""Base classes for operations, and the context and actor with which they run."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, ClassVar, Generic, TypeVar, cast
from uuid import UUID

import msgspec

from payintent.core.access import Role
from payintent.core.errors import ConflictError, ErrorCode, RefusedError
from payintent.core.money import format_rate
from payintent.db.database import Database, Executor, Tx
from payintent.evm.abi import to_checksum_address
from payintent.gateways.port import Gateway, GatewayCapabilities
from payintent.operators import audit_store
from payintent.operators.fields import (
    CreatedBefore,
    CreatedSince,
    ListLimit,
    ListOrder,
    MerchantFilter,
    OlderThan,
    TimeRange,
    check_cursor,
    check_list_limit,
    check_merchant,
    parse_time_range,
)
from payintent.runtime.encryption import Encryption
from payintent.runtime.json_format import format_timestamp
from payintent.runtime.settings import Settings

R = TypeVar("R")
T = TypeVar("T")


def to_json_value(value: object) -> Any:
    """Convert a value to JSON types. Fields with `repr=False`, such as secrets, are omitted.

    Raw JSON is returned unchanged. Bytes are formatted as addresses with an EIP-55 checksum.
    """
    if value is None or isinstance(value, str | bool | int | msgspec.Raw):
        return value
    if isinstance(value, date | Decimal | UUID | bytes):
        return _format_scalar(value)
    if is_dataclass(value):
        return {
            attribute.name: to_json_value(getattr(value, attribute.name))
            for attribute in fields(value)
            if attribute.repr
        }
    if isinstance(value, Mapping):
        mapping = cast("Mapping[Any, object]", value)
        return {str(name): to_json_value(item) for name, item in mapping.items()}
    return [to_json_value(item) for item in cast("list[object]", value)]


def _format_scalar(value: date | Decimal | UUID | bytes) -> str:
    if isinstance(value, datetime):
        return format_timestamp(value)
    if isinstance(value, bytes):
        return to_checksum_address(value)
    return format_rate(value) if isinstance(value, Decimal) else str(value)


def copy_fields(record_type: type[T], record: object, **values: Any) -> T:
    """Build a `record_type` from `values` and, for all other fields, from `record`."""
    is_struct = issubclass(record_type, msgspec.Struct)
    named_fields = (
        msgspec.structs.fields(record_type) if is_struct else fields(cast("Any", record_type))
    )
    names = [field.name for field in named_fields if field.name not in values]
    return record_type(**{name: getattr(record, name) for name in names}, **values)


#: Prefixes of actor names in the audit log, for terminals and OpenID Connect identities.
TERMINAL_PREFIX = "cli:"
IDENTITY_PREFIX = "oidc:"
#: Prefix of the names of merchants' members and keys.
MEMBER_PREFIX = "merchant:"
#: Names of operator tokens must not start with these prefixes.
RESERVED_PREFIXES = (TERMINAL_PREFIX, MEMBER_PREFIX, "policy:", IDENTITY_PREFIX)


@dataclass(frozen=True, slots=True)
class Actor:
    """An operator, and the reason for a change. Outside the sandbox, a reason is required.

    `role` is None at a terminal without an operator token.
    """

    name: str
    reason: str = ""
    role: Role | None = None
    uses_http: bool = False

    @property
    def is_member(self) -> bool:
        """Whether a merchant's member is making the change in the portal."""
        return self.name.startswith(MEMBER_PREFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationContext:
    """The dependencies of operations."""

    database: Database
    read_database: Executor  # for lists; may be a replica that lags by a few seconds
    encryption: Encryption
    settings: Settings
    gateways: Mapping[str, Gateway]  # adapters by provider
    operations: "Mapping[str, OperationType]"  # by action
    actor: Actor = Actor("")
    approved_by: str | None = None  # the second operator, if approval was needed

    @property
    def actor_name(self) -> str:
        return self.actor.name

    def capabilities(self, provider: str) -> GatewayCapabilities | None:
        """Return the capabilities of a provider's adapter, or None if it is not installed."""
        gateway = self.gateways.get(provider)
        return gateway.capabilities if gateway else None

    @property
    def is_exempt(self) -> bool:
        """Whether the actor never needs approval, like a sandbox terminal without a token."""
        return self.settings.sandbox and self.actor.role is None

    @property
    def is_approved(self) -> bool:
        """Whether no further approval is needed."""
        return self.is_exempt or self.approved_by is not None


class Operation(msgspec.Struct, Generic[R], frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class for operations. The fields are the arguments, and the result is an `R`."""

    action: ClassVar[str]
    needs_role: ClassVar[Role]  # the lowest role that may run it
    #: Columns of the table that the command prints. JSON output has all fields.
    columns: ClassVar[tuple[str, ...]] = ()

    def required_role(self) -> Role:
        """Return the lowest role that may run the operation with these arguments."""
        return self.needs_role


class ReadOperation(Operation[R], Generic[R], frozen=True, kw_only=True):
    needs_role: ClassVar[Role] = Role.VIEWER

    async def read(self, context: OperationContext) -> R:
        """Return the result. Raises `RefusedError` for invalid arguments."""
        raise NotImplementedError


class PendingList(ReadOperation[R], Generic[R], frozen=True, kw_only=True):
    """A list of entries for one merchant or all merchants, sorted by creation time."""

    merchant_id: MerchantFilter = None
    since: CreatedSince = None
    until: CreatedBefore = None
    older_than: OlderThan = None
    order: ListOrder = "newest"
    limit: ListLimit = 20

    async def check_list(
        self,
        context: OperationContext,
        before: object,
        after: object,
    ) -> TimeRange:
        """Check the fields and return the time range. Raises `BAD_REQUEST` or `NOT_FOUND`."""
        check_list_limit(self.limit)
        check_cursor(self.order, before, after)
        await check_merchant(context.database, self.merchant_id)
        return await parse_time_range(context.database, self.since, self.until, self.older_than)


class ChangeOperation(Operation[R], Generic[R], frozen=True, kw_only=True):
    needs_role: ClassVar[Role] = Role.ADMIN
    #: Whether a terminal without a token may submit it outside the sandbox, if `apply` allows it.
    is_bootstrap: ClassVar[bool] = False
    #: Whether the CLI requires confirmation, because the change is irreversible or stops payments.
    is_destructive: ClassVar[bool] = False
    #: Whether `count_changes` is implemented, for operations that may change many rows.
    has_dry_run: ClassVar[bool] = False
    #: Fields that contain secrets. They are never shown again or written to the audit log.
    secret_fields: ClassVar[frozenset[str]] = frozenset()
    #: Fields that contain personal data. They are not written to the audit log.
    personal_fields: ClassVar[frozenset[str]] = frozenset()

    async def needs_approval(self, context: OperationContext) -> bool:
        """Return whether a second person must approve the operation with these arguments."""
        return False

    async def changes(self, context: OperationContext) -> list[str]:
        """Describe the changes for the approver, without secrets."""
        return [f"{name}: {value}" for name, value in details(self).items()] or [self.action]

    async def check(self, context: OperationContext) -> None:
        """Validate the arguments outside a transaction. Only this method may make network calls."""

    async def count_changes(self, context: OperationContext) -> Mapping[str, object]:
        """Count the changes for a dry run without making them."""
        raise NotImplementedError

    async def apply(self, context: OperationContext, tx: Tx) -> R:
        """Make the change. Its audit entry is written in the same transaction."""
        raise NotImplementedError

    def get_merchant_id(self, result: R) -> int | None:
        """Return the merchant id, if any, from the arguments or, failing that, from the result."""
        merchant_id: int | None = getattr(self, "merchant_id", None)
        return getattr(result, "merchant_id", None) if merchant_id is None else merchant_id

    def audit_details(self, result: R) -> Mapping[str, object]:
        """Return the fields of the result to record in the audit entry."""
        return {}


AnyOperation = ReadOperation[R] | ChangeOperation[R]
OperationType = type[ReadOperation[Any]] | type[ChangeOperation[Any]]


class BatchOperation(ChangeOperation[R], Generic[R], frozen=True, kw_only=True):
    """A change to any number of rows, in transactions of bounded size, each with an audit entry.

    Batch operations never need approval. If a batch fails, earlier batches remain committed.
    """

    batch_size: ClassVar[int]

    async def total(self, context: OperationContext) -> int:
        """Count the rows in all batches, for the progress display."""
        raise NotImplementedError

    def count(self, batch: R) -> int:
        raise NotImplementedError

    def combine(self, total: R, batch: R) -> R:
        raise NotImplementedError

    def next_batch(self, batch: R) -> "BatchOperation[R] | None":
        """Return the operation for the next batch, or None after the last batch."""
        raise NotImplementedError


async def run(
    context: OperationContext,
    tx: Tx,
    change: ChangeOperation[R],
    extra_details: Mapping[str, object] | None = None,
) -> R:
    """Apply a change and write its audit entry, including `extra_details`."""
    result = await change.apply(context, tx)
    await audit_store.add(
        tx,
        actor_name=context.actor_name,
        reason=context.actor.reason,
        action=change.action,
        merchant_id=change.get_merchant_id(result),
        details=details(change)
        | to_json_value(change.audit_details(result))
        | to_json_value(extra_details or {}),
    )
    return result


def details(change: ChangeOperation[Any]) -> dict[str, Any]:
    """Return the fields that are set, for the audit log. Secrets and personal data are masked."""
    return {
        name: "(hidden)"
        if name in change.secret_fields | change.personal_fields
        else to_json_value(value)
        for name in change.__struct_fields__
        if (value := getattr(change, name)) is not None
    }


def check_approved(context: OperationContext, *, needs_approval: bool) -> None:
    """Raise `CONFLICT` if a concurrent change made the operation require approval."""
    if needs_approval and not context.is_approved:
        raise ConflictError("this needs approval because of a concurrent change; submit it again")


def check_role(context: OperationContext, operation: Operation[Any]) -> None:
    """Raise `FORBIDDEN` if the actor's role may not run the operation."""
    role, lowest_role = context.actor.role, operation.required_role()
    if role is None:
        if not context.settings.sandbox:
            raise RefusedError(
                ErrorCode.FORBIDDEN,
                "outside the sandbox, set PAYINTENT_OPERATOR_TOKEN to your operator token",
            )
    elif not role.includes(lowest_role):
        raise RefusedError(
            ErrorCode.FORBIDDEN,
            f"{operation.action} requires the {lowest_role} role; "
            f"{context.actor_name} has the {role} role",
        )
