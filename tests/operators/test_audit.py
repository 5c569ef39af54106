"""Every change is audited with its operator, reason and details, but without secrets."""

import json
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, ClassVar

import asyncpg
import msgspec
import pytest

from payintent.core.errors import ErrorCode, RefusedError
from payintent.db.database import Tx
from payintent.merchants import taxes as tax_rates
from payintent.merchants.taxes import SetTaxRate
from payintent.operations import OPERATIONS
from payintent.operators.operation import Actor, ChangeOperation, OperationContext, to_json_value
from payintent.operators.operations import ListAuditEntries
from payintent.runtime.id_generator import IdGenerator
from tests.support.stage import ABOUT, ADA, EXAMPLES, SECRET, TWO_PEOPLE, Stage
from tests.support.world import World

_CHANGES = [name for name, kind in OPERATIONS.items() if issubclass(kind, ChangeOperation)]
#: What a line has of the result of its change.
MADE = {"payment.refund": ["refund_id"], "webhooks.replay-missed": ["events"]}
MADE |= {"gateway-payout.record": ["id"], "payer.erase": ["payments"]}
MADE |= {"payout.record": ["id"], "payout.import": ["recorded", "recorded_before"]}
MADE |= {"refund.ask-first": ["refunds"], "ledger.backfill": ["facts"], "ledger.adjust": ["id"]}
_SHOWN_ONCE = {"api_key", "callback_secret", "token"}


async def _lines(world: World, but: list[Any] | None = None) -> list[Any]:
    """Read the log without known entries. Entries of the same millisecond have no order."""
    return await world.rows(
        "SELECT id, who, why, action, merchant_id, details::text AS details FROM audit "
        "WHERE id <> ALL($1::uuid[]) ORDER BY id",
        [line["id"] for line in but or []],
    )


def test_every_operation_has_an_example() -> None:
    assert set(EXAMPLES) == set(OPERATIONS)
    assert all(kind.action == name for name, kind in OPERATIONS.items())


async def test_every_change_writes_one_audit_entry_and_a_read_writes_nothing(stage: Stage) -> None:
    for action in EXAMPLES:
        before = await _lines(stage.world)
        operation = stage.example(action)
        result = await stage.perform(operation)
        added = await _lines(stage.world, before)
        if not isinstance(operation, ChangeOperation):
            assert added == [], action
            continue
        lines = {line["action"]: line for line in added}
        line = lines.pop(action)
        agreed = _agreed(action, lines)
        fields = stage.fields(action)
        about = stage.meant(ABOUT.get(action)) or fields.get("merchant_id")
        if action == "merchant.create":
            about = result.merchant.id
        assert (line["who"], line["why"], line["action"]) == ("Ada", "ticket 7", action)
        assert line["merchant_id"] == about, action
        made = json.loads(line["details"])
        assert {made.pop(name) is not None for name in MADE.get(action, ())} <= {True}, action
        assert made == _details(operation) | agreed, action


def _agreed(action: str, others: dict[str, Any]) -> dict[str, Any]:
    """Check the other entries of two-person changes; return the additional fields of the change."""
    if action.startswith("approval."):
        done = {"chain.set"} if action == "approval.approve" else set()
        assert set(others) == done
        return {"action": "chain.set", "proposed_by": "Bob"}
    if action not in TWO_PEOPLE:
        assert others == {}
        return {}
    proposed, approved = others.pop("approval.propose"), others.pop("approval.approve")
    assert others == {}
    assert (proposed["who"], approved["who"]) == ("Ada", "Alan")
    approval = json.loads(approved["details"])
    assert (approval["action"], approval["proposed_by"]) == (action, "Ada")
    return {"approval_id": approval["approval_id"], "approved_by": "Alan"}


def _details(operation: ChangeOperation[Any]) -> dict[str, Any]:
    return {
        name: "(hidden)"
        if name in operation.secret_fields | operation.personal_fields
        else to_json_value(value)
        for name, value in msgspec.structs.asdict(operation).items()
        if value is not None
    }


async def test_secrets_appear_neither_in_the_audit_log_nor_in_read_results(
    stage: Stage, capfd: pytest.CaptureFixture[str]
) -> None:
    secrets, told = {SECRET}, ""
    for action in EXAMPLES:
        result = await stage.perform(stage.example(action))
        shown = vars(result) if isinstance(result, SimpleNamespace) else to_json_value(result)
        if isinstance(stage.example(action), ChangeOperation):
            made = shown if isinstance(shown, dict) else {}
            secrets |= {one for name in _SHOWN_ONCE if (one := made.get(name))}
        else:
            told += msgspec.json.encode(shown).decode()
    for action in EXAMPLES:  # once more, now that everything has been made
        if not issubclass(OPERATIONS[action], ChangeOperation):
            shown = to_json_value(await stage.perform(stage.example(action)))
            told += msgspec.json.encode(shown).decode()
    told += "".join(line["details"] for line in await _lines(stage.world))
    told += "".join(capfd.readouterr())
    assert len(secrets) >= 5
    assert [secret for secret in secrets if secret in told] == []
    assert "sealed" not in told
    assert "digest" not in told


@pytest.mark.parametrize("why", ["", "  ", "\n"])
async def test_outside_the_sandbox_a_change_without_a_reason_is_rejected_and_not_audited(
    stage: Stage, why: str
) -> None:
    before = await _lines(stage.world)
    for action in _CHANGES:
        with pytest.raises(RefusedError, match="why is required") as refused:
            await stage.perform(stage.example(action), replace(ADA, reason=why))
        assert refused.value.code is ErrorCode.BAD_REQUEST
    assert await _lines(stage.world) == before


async def test_in_the_sandbox_a_reason_is_optional(world: World) -> None:
    before = await _lines(world)
    await world.service.run_operation(SetTaxRate(country="TH", rate=Decimal("0.07")), Actor("Ada"))
    assert [(line["who"], line["why"]) for line in await _lines(world, before)] == [("Ada", "")]


@pytest.mark.parametrize(
    ("actor", "field"),
    [
        (Actor("A" * 201, "x"), "who"),
        (Actor("A\x00", "x"), "who"),
        (Actor("Ada", "x" * 501), "why"),
        (Actor("Ada", "\x00"), "why"),
    ],
)
async def test_operator_names_and_reasons_are_validated(
    world: World, actor: Actor, field: str
) -> None:
    with pytest.raises(RefusedError, match=f"{field} must have at most") as refused:
        await world.service.run_operation(SetTaxRate(country="TH", rate=Decimal(0)), actor)
    assert refused.value.code is ErrorCode.BAD_REQUEST


class _Half(ChangeOperation[None], frozen=True, kw_only=True):
    action: ClassVar[str] = "test.half"

    async def apply(self, context: OperationContext, tx: Tx) -> None:
        del context
        await tax_rates.set_tax_rate(tx, "TH", Decimal("0.07"))
        raise RefusedError(ErrorCode.CONFLICT, "half way")


async def test_a_failed_change_is_rolled_back_and_not_audited(world: World) -> None:
    before = await _lines(world)
    with pytest.raises(RefusedError, match="half way"):
        await world.perform(_Half())
    assert await world.rows("SELECT * FROM tax_rate") == []
    assert await _lines(world) == before


async def test_a_change_is_rolled_back_if_its_audit_entry_cannot_be_written(world: World) -> None:
    await world.rows("ALTER TABLE audit ADD CONSTRAINT no_tax CHECK (action <> 'tax.set')")
    with pytest.raises(asyncpg.CheckViolationError):
        await world.perform(SetTaxRate(country="TH", rate=Decimal("0.07")))
    assert await world.rows("SELECT * FROM tax_rate") == []


@pytest.mark.parametrize(
    "query", ["UPDATE audit SET why = 'another'", "DELETE FROM audit", "TRUNCATE audit"]
)
async def test_the_audit_log_is_append_only(world: World, query: str) -> None:
    before = await _lines(world)
    connection = await world.open_connection()
    try:
        with pytest.raises(asyncpg.CheckViolationError, match="only ever added to"):
            await connection.execute(query)
    finally:
        await connection.close()
    assert before == await _lines(world) != []


async def test_the_audit_log_can_be_filtered_by_merchant_subject_and_action(stage: Stage) -> None:
    async def actions(**wanted: Any) -> list[str]:
        return sorted(
            item.action for item in await stage.perform(ListAuditEntries(limit=1000, **wanted))
        )

    assert set(await actions(of="account")) == {"account.add"}
    assert await actions(of="account.add") == await actions(of="account")
    assert await actions(of="acc") == []
    new = stage.known["merchant"]
    theirs = ["account.add", "approval.approve", "approval.propose", "fraud.add"]
    theirs += ["gateway-payout.record", "key.issue", "merchant.create", "method.add"]
    assert await actions(merchant_id=new) == theirs
    assert await actions(merchant_id=new, of="key") == ["key.issue"]


async def test_the_audit_log_is_listed_newest_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = ["0.01", "0.02", "0.03"]
    for number, rate in enumerate(rates):
        # Ids carry the host's time: one that is later, not one in the same millisecond.
        later = IdGenerator(lambda number=number: 4_000_000_000_000 + number)
        monkeypatch.setattr(world.service.database, "id_generator", later)
        await world.perform(SetTaxRate(country="TH", rate=Decimal(rate)))
    listed = await world.perform(ListAuditEntries(of="tax", limit=2))
    assert [item.details["rate"] for item in listed] == ["0.03", "0.02"]
