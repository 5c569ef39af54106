"""What each role may do: the least that an operation needs, and nothing for those below it."""

from dataclasses import replace

import pytest

from payintent.domain.errors import Code, Refused
from payintent.domain.operator import Role
from payintent.operation.desk import Read
from payintent.operation.table import OPERATIONS
from tests.operation.stage import ADA, EXAMPLES, Stage

#: Changes that less than an admin may make. Every other change is the admin's, a read a viewer's.
LEAST = {
    "operator.replace": Role.VIEWER,  # of one's own token
    "case.resolve": Role.SUPPORT,  # by a refund it is finance's
    "webhooks.replay": Role.SUPPORT,
    "webhooks.replay-missed": Role.SUPPORT,
    "approval.approve": Role.FINANCE,
    "approval.reject": Role.FINANCE,
    "refund.approve": Role.FINANCE,
    "refund.reject": Role.FINANCE,
}


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.ADMIN])
async def test_whoever_has_less_than_an_operation_needs_is_refused_and_changes_nothing(
    stage: Stage, role: Role
) -> None:
    actor = replace(ADA, role=role)
    refused = set()
    before = await stage.world.rows("SELECT count(*) FROM audit")
    for action in EXAMPLES:
        kind = OPERATIONS[action]
        least = LEAST.get(action, Role.VIEWER if issubclass(kind, Read) else Role.ADMIN)
        if role.includes(least):
            continue
        with pytest.raises(Refused) as caught:
            await stage.service.submit(stage.example(action), actor)
        assert caught.value.code is Code.FORBIDDEN, action
        refused.add(action)
    assert {"key.issue", "account.change", "chain.set", "operator.issue"} <= refused
    assert await stage.world.rows("SELECT count(*) FROM audit") == before


def test_every_operation_needs_the_role_that_is_said_here(stage: Stage) -> None:
    needed = {
        action: stage.example(action).required_role()
        for action, kind in OPERATIONS.items()
        if stage.example(action).required_role()
        is not (Role.VIEWER if issubclass(kind, Read) else Role.ADMIN)
    }
    assert needed == LEAST
