"""Rules that inject faults into API calls and pages."""

import re
from collections.abc import Collection
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from payintent_sandbox.emulators.simulator.model import Order, RefusalError, is_amount

RULES_MAX = 100


class Operation(StrEnum):
    """The calls in which a rule can inject a fault."""

    CREATE = "create"
    INQUIRE = "inquire"
    CANCEL = "cancel"
    PAGE = "page"
    REFUND = "refund"
    INQUIRE_REFUND = "inquire_refund"


_TIMES = re.compile(r"503x([1-9][0-9]{0,3})")
_OPERATIONS = {
    "hang35s": Operation.CREATE,
    "bad_json": Operation.CREATE,
    "callback_before_response": Operation.CREATE,
    "hosted_500": Operation.PAGE,
    "hang_inquiry": Operation.INQUIRE,
    "503_inquiry": Operation.INQUIRE,
    "503_cancel": Operation.CANCEL,
    "503_refund": Operation.REFUND,
    "hang_refund": Operation.REFUND,
    "refunds_work": Operation.REFUND,
    "503_refund_inquiry": Operation.INQUIRE_REFUND,
}


class Match(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Selects the sessions that a rule applies to; an empty match selects all.

    A refund matches by its own reference, or by its session's reference or amount.
    """

    amount: Annotated[str, Meta(pattern=r"^[0-9]{1,16}(\.[0-9]{1,4})?\Z")] | None = None
    reference: str | None = None

    def fits(self, names: Collection[str], order: Order | None) -> bool:
        """Return whether the session matches. Without an order, an amount never matches."""
        if self.reference is not None and self.reference not in names:
            return False
        if self.amount is None:
            return True
        return order is not None and is_amount(self.amount, order.amount_minor, order.currency)


class Rule(Struct, frozen=True, forbid_unknown_fields=True):
    """A fault and the sessions that it applies to."""

    match: Match
    action: str


class Rules:
    """The current rules. The first rule that matches the session and the operation applies."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []
        self._left: dict[int, int] = {}  # remaining applications of each counted rule, by index

    def replace(self, body: bytes) -> list[Rule]:
        """Replace all rules with a JSON list of rules."""
        try:
            rules = msgspec.json.decode(body, type=list[Rule])
        except msgspec.DecodeError as error:
            raise RefusalError(400, str(error)) from None
        if len(rules) > RULES_MAX:
            raise RefusalError(400, f"at most {RULES_MAX} rules")
        for rule in rules:
            if rule.action not in _OPERATIONS and not _TIMES.fullmatch(rule.action):
                raise RefusalError(400, f"unknown action: {rule.action}")
        self._rules = rules
        self._left = {
            index: int(times[1])
            for index, rule in enumerate(rules)
            if (times := _TIMES.fullmatch(rule.action))
        }
        return rules

    def action(
        self, operation: Operation, names: Collection[str], order: Order | None
    ) -> str | None:
        """Return the fault for this call: an action, `503` or None."""
        for index, rule in enumerate(self._rules):
            if not rule.match.fits(names, order):
                continue
            if _OPERATIONS.get(rule.action) is operation:
                return rule.action
            if operation is Operation.CREATE and self._left.get(index, 0) > 0:
                self._left[index] -= 1
                return "503"
        return None
