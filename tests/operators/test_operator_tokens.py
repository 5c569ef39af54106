"""Roles at the operator port, for all operations, and the lifetime of tokens and names."""

from typing import Any

import msgspec
import pytest

from payintent.core.access import Role
from payintent.core.errors import ErrorCode, RefusedError
from payintent.operations import OPERATIONS
from payintent.operators.operation import Actor, ChangeOperation, ReadOperation
from payintent.operators.operations import ExtendToken, IssueOperatorToken, ListOperatorTokens
from payintent.reconciliation.operations import CompareProviderFile, ReconcileProviderFile
from payintent.service import Service
from tests.support.arrange import refusal
from tests.support.operation_examples import Stage
from tests.support.world import Api, World

_DAY_S = 24 * 3600
_SUPPORT = {"webhooks.replay", "webhooks.replay-missed", "case.resolve", "payment.cancel"}
_SUPPORT |= {"account.check", "payment-link.deactivate"}
_FINANCE = {"refund.approve", "refund.reject", "approval.approve", "approval.reject"}
_FINANCE |= {
    "payment.end",
    "payment.refund",
    "refund.resend",
    "ledger.adjust",
    "refund.address-link",
    "refund.ask-first",
    "ledger.backfill",
    "payout.record",
    "payout.import",
    "payout.reverse",
    "gateway-payout.record",
    "gateway-payout.reverse",
    "reconciliation.retry",
}
_OWN_TOKEN = {"operator.replace"}  # every role can replace its own token


def _required_role(action: str) -> Role:
    """Return the lowest role that can run an operation, independently of its class."""
    if action in _SUPPORT:
        return Role.SUPPORT
    if issubclass(OPERATIONS[action], ReadOperation) or action in _OWN_TOKEN:
        return Role.VIEWER
    return Role.FINANCE if action in _FINANCE else Role.ADMIN


def test_every_operation_requires_its_documented_role() -> None:
    for action, kind in OPERATIONS.items():
        assert kind.needs_role is _required_role(action), action
    assert (CompareProviderFile.needs_role, ReconcileProviderFile.needs_role) == (
        Role.VIEWER,
        Role.FINANCE,
    )
    assert (ReadOperation.needs_role, ChangeOperation.needs_role) == (Role.VIEWER, Role.ADMIN)


def test_each_role_includes_all_lower_roles() -> None:
    roles = [Role.VIEWER, Role.SUPPORT, Role.FINANCE, Role.ADMIN]
    assert list(Role) == roles
    for rank, role in enumerate(roles):
        assert [role.includes(included_role) for included_role in roles] == [
            included_rank <= rank for included_rank in range(4)
        ]


@pytest.mark.parametrize("role", list(Role))
async def test_a_token_can_run_only_the_operations_that_its_role_includes(
    operator: Api, stage: Stage, role: Role
) -> None:
    """Permitted changes have an unknown field, so that they are rejected and change nothing."""
    headers = operator.bearer(await stage.world.operator_token(f"of {role}", role))
    for action, kind in OPERATIONS.items():
        if action == "operator.replace":
            continue  # has no required fields, and every role can run it
        fields = stage.fields(action) | {"why": "ticket 7"}
        path = f"/operator/{action.replace('.', '/')}"
        if issubclass(kind, ReadOperation):
            query = {name: str(value) for name, value in stage.fields(action).items()}
            response = await operator.send("GET", path, params=query, headers=headers)
            assert response.status == (200 if role.includes(_required_role(action)) else 403), (
                action
            )
        elif not role.includes(_required_role(action)):
            response = await operator.send("POST", path, json=fields, headers=headers)
            assert refusal(response) == (403, "FORBIDDEN"), action
            assert response.json["message"] == (
                f"{action} requires the {_required_role(action)} role; "
                f"of {role} has the {role} role"
            )
        else:
            response = await operator.send("POST", path, json=fields | {"nome": 1}, headers=headers)
            assert refusal(response) == (400, "BAD_REQUEST"), action
    event = stage.known["event"]
    response = await operator.send(
        "POST", f"/operator/webhooks/{event}/replay", json={"why": "x"}, headers=headers
    )
    assert response.status == (200 if role.includes(Role.SUPPORT) else 403)


async def test_refunding_a_case_requires_finance_and_dismissing_it_requires_support(
    stage: Stage,
) -> None:
    fields = stage.fields("case.resolve") | {"resolution": "refund"}
    refund = msgspec.convert(fields, OPERATIONS["case.resolve"])
    with pytest.raises(RefusedError, match=r"case\.resolve requires the finance role") as refused:
        await stage.service.submit(refund, Actor("Ada", "ticket 7", Role.SUPPORT))
    assert refused.value.code is ErrorCode.FORBIDDEN
    closed: Any = await stage.service.submit(
        stage.example("case.resolve"), Actor("Ada", "ticket 7", Role.SUPPORT)
    )
    assert closed.status == "DISMISSED"


async def test_a_token_has_the_viewer_role_and_expires_after_90_days_by_default(
    operator: Api, world: World
) -> None:
    issued = await world.perform(IssueOperatorToken(name="Grace"))
    [token] = await world.perform(ListOperatorTokens())
    assert (token.role, token.last_used_at, issued.expires_at) == (
        *(Role.VIEWER, None, token.expires_at),
    )
    assert (token.expires_at - token.created_at).total_seconds() == 90 * _DAY_S
    headers = operator.bearer(issued.token)

    async def status() -> int:
        return (await operator.send("GET", "/operator/tax/list", headers=headers)).status

    assert await status() == 200
    [first] = await world.perform(ListOperatorTokens())
    assert first.last_used_at is not None
    await world.move_clock(3600)
    assert await status() == 200
    [later] = await world.perform(ListOperatorTokens())
    assert later.last_used_at is not None
    assert (later.last_used_at - first.last_used_at).total_seconds() >= 3600 - 60
    await world.move_clock(90 * _DAY_S + 1)
    assert await status() == 401
    await world.perform(ExtendToken(public_id=token.public_id, days=1))
    assert await status() == 200
    await world.move_clock(91 * _DAY_S + 2)
    assert await status() == 401


async def test_the_name_of_an_operator_can_never_be_reused(world: World) -> None:
    service: Service = world.service
    token = await world.operator_token("Grace")
    for revoke in (False, True):
        if revoke:
            await world.rows("UPDATE operator_token SET revoked_at = clock()")
        for name in ("Grace", "grace", "GRACE"):
            with pytest.raises(RefusedError, match="is or was the name of an operator") as refused:
                await world.perform(IssueOperatorToken(name=name))
            assert refused.value.code is ErrorCode.CONFLICT
    [row] = await world.rows("SELECT public_id FROM operator_token")
    with pytest.raises(RefusedError, match="is revoked and cannot be extended"):
        await world.perform(ExtendToken(public_id=row["public_id"]))
    assert token.split("_")[1] == row["public_id"]
    assert service.settings.sandbox
