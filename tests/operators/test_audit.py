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
from tests.support.operation_examples import ABOUT, ADA, EXAMPLES, SECRET, TWO_PEOPLE, Stage
from tests.support.world import World

_CHANGES = [name for name, kind in OPERATIONS.items() if issubclass(kind, ChangeOperation)]
#: The fields of an entry that come from the result of the change.
RESULT_FIELDS = {"payment.refund": ["refund_id"], "webhooks.replay-missed": ["events"]}
RESULT_FIELDS |= {"gateway-payout.record": ["id"], "payer.erase": ["payments"]}
RESULT_FIELDS |= {"payout.record": ["id"], "payout.import": ["recorded", "recorded_before"]}
RESULT_FIELDS |= {
    "refund.ask-first": ["refunds"],
    "ledger.backfill": ["facts"],
    "ledger.adjust": ["id"],
}
_ONE_TIME_SECRETS = {"api_key", "callback_secret", "token"}


async def _list_entries(world: World, excluded_entries: list[Any] | None = None) -> list[Any]:
    """Read the log without these entries. Entries of the same millisecond are unordered."""
    return await world.rows(
        "SELECT id, who, why, action, merchant_id, details::text AS details FROM audit "
        "WHERE id <> ALL($1::uuid[]) ORDER BY id",
        [entry["id"] for entry in excluded_entries or []],
    )


def test_every_operation_has_an_example() -> None:
    assert set(EXAMPLES) == set(OPERATIONS)
    assert all(kind.action == name for name, kind in OPERATIONS.items())


async def test_every_change_writes_one_audit_entry_and_a_read_writes_nothing(stage: Stage) -> None:
    for action in EXAMPLES:
        before = await _list_entries(stage.world)
        operation = stage.example(action)
        result = await stage.perform(operation)
        added = await _list_entries(stage.world, before)
        if not isinstance(operation, ChangeOperation):
            assert added == [], action
            continue
        entries = {entry["action"]: entry for entry in added}
        entry = entries.pop(action)
        approval_fields = _check_approval_entries(action, entries)
        fields = stage.fields(action)
        merchant_id = stage.meant(ABOUT.get(action)) or fields.get("merchant_id")
        if action == "merchant.create":
            merchant_id = result.merchant.id
        assert (entry["who"], entry["why"], entry["action"]) == ("Ada", "ticket 7", action)
        assert entry["merchant_id"] == merchant_id, action
        details = json.loads(entry["details"])
        assert {details.pop(name) is not None for name in RESULT_FIELDS.get(action, ())} <= {
            True
        }, action
        assert details == _expected_details(operation) | approval_fields, action


def _check_approval_entries(action: str, entries: dict[str, Any]) -> dict[str, Any]:
    """Check the entries of an approval; return the fields that it adds to the change's entry."""
    if action.startswith("approval."):
        expected = {"chain.set"} if action == "approval.approve" else set()
        assert set(entries) == expected
        return {"action": "chain.set", "proposed_by": "Bob"}
    if action not in TWO_PEOPLE:
        assert entries == {}
        return {}
    proposed, approved = entries.pop("approval.propose"), entries.pop("approval.approve")
    assert entries == {}
    assert (proposed["who"], approved["who"]) == ("Ada", "Alan")
    approval = json.loads(approved["details"])
    assert (approval["action"], approval["proposed_by"]) == (action, "Ada")
    return {"approval_id": approval["approval_id"], "approved_by": "Alan"}


def _expected_details(operation: ChangeOperation[Any]) -> dict[str, Any]:
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
    secrets, text = {SECRET}, ""
    for action in EXAMPLES:
        result = await stage.perform(stage.example(action))
        value = vars(result) if isinstance(result, SimpleNamespace) else to_json_value(result)
        if isinstance(stage.example(action), ChangeOperation):
            members = value if isinstance(value, dict) else {}
            secrets |= {
                secret_value for name in _ONE_TIME_SECRETS if (secret_value := members.get(name))
            }
        else:
            text += msgspec.json.encode(value).decode()
    for action in EXAMPLES:  # read again when all objects exist
        if not issubclass(OPERATIONS[action], ChangeOperation):
            value = to_json_value(await stage.perform(stage.example(action)))
            text += msgspec.json.encode(value).decode()
    text += "".join(entry["details"] for entry in await _list_entries(stage.world))
    text += "".join(capfd.readouterr())
    assert len(secrets) >= 5
    assert [secret for secret in secrets if secret in text] == []
    assert "sealed" not in text
    assert "digest" not in text


@pytest.mark.parametrize("why", ["", "  ", "\n"])
async def test_outside_the_sandbox_a_change_without_a_reason_is_rejected_and_not_audited(
    stage: Stage, why: str
) -> None:
    before = await _list_entries(stage.world)
    for action in _CHANGES:
        with pytest.raises(RefusedError, match="why is required") as refused:
            await stage.perform(stage.example(action), replace(ADA, reason=why))
        assert refused.value.code is ErrorCode.BAD_REQUEST
    assert await _list_entries(stage.world) == before


async def test_in_the_sandbox_a_reason_is_optional(world: World) -> None:
    before = await _list_entries(world)
    await world.service.run_operation(SetTaxRate(country="TH", rate=Decimal("0.07")), Actor("Ada"))
    assert [(entry["who"], entry["why"]) for entry in await _list_entries(world, before)] == [
        ("Ada", "")
    ]


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


class _FailingChange(ChangeOperation[None], frozen=True, kw_only=True):
    action: ClassVar[str] = "test.half"

    async def apply(self, context: OperationContext, tx: Tx) -> None:
        del context
        await tax_rates.set_tax_rate(tx, "TH", Decimal("0.07"))
        raise RefusedError(ErrorCode.CONFLICT, "half way")


async def test_a_failed_change_is_rolled_back_and_not_audited(world: World) -> None:
    before = await _list_entries(world)
    with pytest.raises(RefusedError, match="half way"):
        await world.perform(_FailingChange())
    assert await world.rows("SELECT * FROM tax_rate") == []
    assert await _list_entries(world) == before


async def test_a_change_is_rolled_back_if_its_audit_entry_cannot_be_written(world: World) -> None:
    await world.rows("ALTER TABLE audit ADD CONSTRAINT no_tax CHECK (action <> 'tax.set')")
    with pytest.raises(asyncpg.CheckViolationError):
        await world.perform(SetTaxRate(country="TH", rate=Decimal("0.07")))
    assert await world.rows("SELECT * FROM tax_rate") == []


@pytest.mark.parametrize(
    "query", ["UPDATE audit SET why = 'another'", "DELETE FROM audit", "TRUNCATE audit"]
)
async def test_the_audit_log_is_append_only(world: World, query: str) -> None:
    before = await _list_entries(world)
    connection = await world.open_connection()
    try:
        with pytest.raises(asyncpg.CheckViolationError, match="only ever added to"):
            await connection.execute(query)
    finally:
        await connection.close()
    assert before == await _list_entries(world) != []


async def test_the_audit_log_can_be_filtered_by_merchant_subject_and_action(stage: Stage) -> None:
    async def actions(**filters: Any) -> list[str]:
        return sorted(
            item.action for item in await stage.perform(ListAuditEntries(limit=1000, **filters))
        )

    assert set(await actions(of="account")) == {"account.add"}
    assert await actions(of="account.add") == await actions(of="account")
    assert await actions(of="acc") == []
    new = stage.known["merchant"]
    expected = ["account.add", "approval.approve", "approval.propose", "fraud.add"]
    expected += ["gateway-payout.record", "key.issue", "merchant.create", "method.add"]
    assert await actions(merchant_id=new) == expected
    assert await actions(merchant_id=new, of="key") == ["key.issue"]


async def test_the_audit_log_is_listed_newest_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = ["0.01", "0.02", "0.03"]
    for number, rate in enumerate(rates):
        # Ids contain the host's time; each entry needs a later millisecond.
        id_generator = IdGenerator(lambda number=number: 4_000_000_000_000 + number)
        monkeypatch.setattr(world.service.database, "id_generator", id_generator)
        await world.perform(SetTaxRate(country="TH", rate=Decimal(rate)))
    entries = await world.perform(ListAuditEntries(of="tax", limit=2))
    assert [item.details["rate"] for item in entries] == ["0.03", "0.02"]
