"""Operations on fraud rules and denials."""

import re
from ipaddress import ip_network
from typing import Annotated, Any, ClassVar

from msgspec.structs import asdict

from payintent.core.errors import BadRequestError, ConflictError, NotFoundError
from payintent.core.texts import check_text
from payintent.db.database import Tx
from payintent.fraud import store as fraud_store
from payintent.fraud.model import VELOCITY_KINDS, FraudRule, FraudRuleKind, RiskLevel
from payintent.fraud.store import FraudDecisionRecord
from payintent.mail.message import to_comparable
from payintent.operators.fields import (
    ListLimit,
    MerchantFilter,
    argument,
    check_list_limit,
    check_merchant,
    check_viewer_country,
    is_database_id,
    option,
)
from payintent.operators.operation import ChangeOperation, OperationContext, ReadOperation

_CODE = re.compile(r"[A-Z][A-Z0-9_]{0,63}", re.ASCII)
_EMAIL = re.compile(r"[^\s@]*@[^\s@]+")
_VALUE_MAX = 255
_COUNT_MAX = 1_000_000
_WINDOW_MAX_S = 30 * 24 * 3600
SCORE_MAX = 100
_DEFAULT_CODES = {
    FraudRuleKind.COUNTRY: "COUNTRY_BLOCKED",
    FraudRuleKind.PAYER: "PAYER_BLOCKED",
    FraudRuleKind.EMAIL: "EMAIL_BLOCKED",
    FraudRuleKind.ADDRESS: "ADDRESS_BLOCKED",
    FraudRuleKind.PAYER_VELOCITY: "VELOCITY_EXCEEDED",
    FraudRuleKind.ADDRESS_VELOCITY: "VELOCITY_EXCEEDED",
}


class AddFraudRule(ChangeOperation[FraudRule], frozen=True, kw_only=True):
    """Add a rule that blocks a value or sets a velocity limit.

    A velocity rule allows up to `count_max` payments or selections in `window_s` seconds.
    """

    action: ClassVar[str] = "fraud.add"
    kind: Annotated[
        FraudRuleKind,
        argument("The kind of value to block, or a velocity limit per payer or address."),
    ]
    value: Annotated[
        str | None, argument("The blocked value, such as JP, buyer-1, @spam.test or 192.0.2.0/24.")
    ] = None
    count_max: Annotated[
        int | None, option("The allowed number of events; only for velocity rules.", name="count")
    ] = None
    window_s: Annotated[int | None, option("The window in seconds; only for velocity rules.")] = (
        None
    )
    merchant_id: Annotated[
        int | None, option("The merchant; defaults to all merchants.", name="merchant")
    ] = None
    code: Annotated[
        str | None, option("The code that callers receive; the default depends on the kind.")
    ] = None
    level: Annotated[RiskLevel, option("The risk level that callers receive.")] = RiskLevel.HIGH
    score: Annotated[
        int,
        option(
            "The risk score. The matching rule with the highest score wins.",
            min=0,
            max=SCORE_MAX,
        ),
    ] = SCORE_MAX

    async def check(self, context: OperationContext) -> None:
        await check_merchant(context.database, self.merchant_id)
        if self.code is not None and not _CODE.fullmatch(self.code):
            raise BadRequestError(
                "code must be 1 to 64 capital letters, digits or underscores, starting with a"
                " letter"
            )
        if not 0 <= self.score <= SCORE_MAX:
            raise BadRequestError(f"score must be from 0 to {SCORE_MAX}")
        if self.kind in VELOCITY_KINDS:
            self._check_velocity()
        else:
            self._check_value()

    def _check_velocity(self) -> None:
        if self.value is not None or self.count_max is None or self.window_s is None:
            raise BadRequestError(
                "a velocity rule requires count_max and window_s, and cannot have a value"
            )
        if not 1 <= self.count_max <= _COUNT_MAX or not 1 <= self.window_s <= _WINDOW_MAX_S:
            raise BadRequestError(
                f"count_max must be from 1 to {_COUNT_MAX}, "
                f"and window_s must be from 1 to {_WINDOW_MAX_S}"
            )

    def _check_value(self) -> None:
        if self.count_max is not None or self.window_s is not None:
            raise BadRequestError("only velocity rules can have count_max and window_s")
        value = self.value or ""
        check_text("value", value, _VALUE_MAX)
        if self.kind is FraudRuleKind.COUNTRY:
            check_viewer_country(value)
        if self.kind is FraudRuleKind.EMAIL and not _EMAIL.fullmatch(value):
            raise BadRequestError("value must be an email address, or @ followed by a domain")
        if self.kind is FraudRuleKind.ADDRESS:
            _check_network(value)

    async def apply(self, context: OperationContext, tx: Tx) -> FraudRule:
        """Add the rule. All processes apply it within seconds."""
        if await fraud_store.count_rules(tx) >= fraud_store.RULES_MAX:
            raise ConflictError(f"there can be at most {fraud_store.RULES_MAX} active rules")
        value = self.value
        if value and self.kind is FraudRuleKind.EMAIL:
            value = to_comparable(value)
        code = self.code or _DEFAULT_CODES[self.kind]
        fields: dict[str, Any] = asdict(self) | {"value": value, "code": code}
        return await fraud_store.add_rule(tx, FraudRule(id=0, **fields))


class ListFraudRules(ReadOperation[list[FraudRule]], frozen=True, kw_only=True):
    """List the active rules."""

    action: ClassVar[str] = "fraud.list"
    columns = (
        *("id", "kind", "merchant_id", "value", "count_max", "window_s"),
        *("code", "level", "score"),
    )

    async def read(self, context: OperationContext) -> list[FraudRule]:
        return await fraud_store.list_rules(context.database)


class RemoveFraudRule(ChangeOperation[FraudRule], frozen=True, kw_only=True):
    """Deactivate a rule."""

    action: ClassVar[str] = "fraud.remove"
    is_destructive: ClassVar[bool] = True
    rule_id: Annotated[int, argument("The rule id.")]

    async def apply(self, context: OperationContext, tx: Tx) -> FraudRule:
        rule = (
            await fraud_store.remove_rule(tx, self.rule_id)
            if is_database_id(self.rule_id)
            else None
        )
        if rule is None:
            raise NotFoundError(f"no fraud rule {self.rule_id}")
        return rule


class ListFraudDecisions(ReadOperation[list[FraudDecisionRecord]], frozen=True, kw_only=True):
    """List denials, newest first."""

    action: ClassVar[str] = "fraud.decisions"
    columns = ("decided_at", "merchant_id", "payment_id", "rule_id", "code", "level", "score")
    merchant_id: MerchantFilter = None
    limit: ListLimit = 20

    async def read(self, context: OperationContext) -> list[FraudDecisionRecord]:
        check_list_limit(self.limit)
        await check_merchant(context.database, self.merchant_id)
        return await fraud_store.list_decisions(context.read_database, self.merchant_id, self.limit)


def _check_network(value: str) -> None:
    try:
        ip_network(value)
    except ValueError as error:
        raise BadRequestError(f"value is not an address or network: {error}") from error
