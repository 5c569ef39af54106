"""The one way an operator reads or changes anything: an operation, performed by somebody."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from payintent.domain.errors import Code, Refused
from payintent.lifecycle.mint import Mint
from payintent.operation.plain import plain
from payintent.storage import audit
from payintent.storage.database import Database, Tx
from payintent.storage.sealed import Secrets

R = TypeVar("R")
#: What the audit log calls whoever works at a terminal begins so; no token's name does.
TERMINAL = "cli:"
#: Names that begin so are no token's: of terminals, of merchants that ask, of our own rules.
NOBODYS = (TERMINAL, "merchant:", "policy:")
_WHO_MAX, _WHY_MAX = 200, 500


@dataclass(frozen=True, slots=True)
class Actor:
    """Who does something, and why; outside the sandbox a change needs a reason."""

    who: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What operations work with."""

    database: Database
    secrets: Secrets
    mint: Mint
    sandbox: bool
    providers: frozenset[str]  # that this installation has adapters for
    who: str = ""  # performs it


class Read(msgspec.Struct, Generic[R], frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An operation that changes nothing; its fields are what it needs to know."""

    action: ClassVar[str]

    async def read(self, desk: Desk) -> R:
        """Give what was asked for."""
        raise NotImplementedError


class Change(msgspec.Struct, Generic[R], frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An operation that changes something; its fields are what is changed."""

    action: ClassVar[str]
    #: Fields that the audit log must not hold.
    hidden: ClassVar[frozenset[str]] = frozenset()

    async def check(self, desk: Desk) -> None:
        """Refuse what can be refused without a transaction; here the network may be asked."""

    async def apply(self, desk: Desk, tx: Tx) -> R:
        """Make the change."""
        raise NotImplementedError

    def about(self, result: R) -> int | None:
        """Name the merchant that the change is about, if it is about one."""
        del result
        return getattr(self, "merchant_id", None)

    def outcome(self, result: R) -> Mapping[str, object]:
        """Give what the audit log holds of the result, beside the fields."""
        del result
        return {}


async def perform(desk: Desk, operation: Read[R] | Change[R], actor: Actor) -> R:
    """Do what an operator asks; a change and its audit record are one transaction.

    Refused (`BAD_REQUEST`) without a reason outside the sandbox, and as the operation refuses.
    """
    if isinstance(operation, Read):
        return await operation.read(desk)
    _check_actor(desk, actor)
    desk = replace(desk, who=actor.who)
    await operation.check(desk)
    async with desk.database.transaction() as tx:
        result = await operation.apply(desk, tx)
        await audit.add(tx, _entry(desk, operation, actor, result))
    return result


def _check_actor(desk: Desk, actor: Actor) -> None:
    for name, value, longest in (("who", actor.who, _WHO_MAX), ("why", actor.why, _WHY_MAX)):
        if len(value) > longest or "\x00" in value:
            raise Refused(Code.BAD_REQUEST, f"{name} has at most {longest} characters")
    if not desk.sandbox and not actor.why.strip():
        raise Refused(Code.BAD_REQUEST, "say why: the audit log needs a reason")


def _entry(desk: Desk, change: Change[Any], actor: Actor, result: object) -> audit.NewEntry:
    return audit.NewEntry(
        id=desk.mint.id(),
        who=actor.who,
        why=actor.why,
        action=change.action,
        merchant_id=change.about(result),
        details={
            name: "(hidden)" if name in change.hidden else plain(value)
            for name in change.__struct_fields__
            if (value := getattr(change, name)) is not None
        }
        | plain(change.outcome(result)),
    )
