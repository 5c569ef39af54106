"""Operations that redirect money or reveal a secret need a second person's approval."""

import asyncio
import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import asyncpg
import pytest

from payintent.approvals.operations import (
    Approve,
    ListApprovals,
    Reject,
    ShowApproval,
    make_proposal_view,
)
from payintent.chains.operations import ListChains, SetToken
from payintent.core import ids
from payintent.core.access import Role
from payintent.core.errors import ErrorCode, RefusedError
from payintent.db.database import Tx
from payintent.gateway_accounts import store as account_store
from payintent.gateway_accounts.operations import ChangeAccount, ShowAccount
from payintent.merchants.access_operations import ListApiKeys
from payintent.merchants.taxes import SetTaxRate
from payintent.onchain.operations import SetChain
from payintent.operations import OPERATIONS
from payintent.operators import tokens_store
from payintent.operators.operation import Actor
from payintent.operators.operations import (
    IssueOperatorToken,
    ListOperatorTokens,
    RevokeOperatorToken,
    SetRole,
)
from payintent.operators.proposals_store import Proposal
from payintent.privacy.keyring_operations import RotateKeyring
from payintent.runtime.encryption import EncryptionKeyError
from payintent.service import open_service
from payintent.worker import prune
from tests.support.operation_examples import (
    ADA,
    ALAN,
    EXAMPLES,
    SECRET,
    TWO_OVER_HTTP,
    TWO_PEOPLE,
    Stage,
)
from tests.support.race_staging import hold_transaction, wait_until_blocked
from tests.support.world import World

_DAY_S = 24 * 3600
_TERMINAL = Actor("cli:ada", "ticket 7")


async def _propose(stage: Stage, action: str, actor: Actor = ADA) -> Any:
    """Request an operation that needs approval; return its displayed form."""
    proposal = await stage.service.submit(stage.example(action), actor)
    assert isinstance(proposal, Proposal), action
    return make_proposal_view(proposal)


async def _refused(stage: Stage, operation: Any, actor: Actor, words: str) -> ErrorCode:
    with pytest.raises(RefusedError, match=words) as refused:
        await stage.service.submit(operation, actor)
    return refused.value.code


async def _account(stage: Stage) -> Any:
    return await stage.perform(ShowAccount(account_id=stage.known["account"]))


@pytest.mark.parametrize("uses_http", [False, True])
async def test_exactly_these_operations_need_approval(stage: Stage, uses_http: bool) -> None:
    waiting: set[str] = set()
    for action in EXAMPLES:
        result = await stage.service.submit(
            stage.example(action), replace(ADA, uses_http=uses_http)
        )
        if isinstance(result, Proposal):
            waiting.add(action)
            await stage.service.run_operation(
                Approve(approval_id=ids.format_id(ids.APPROVAL, result.id)), ALAN
            )
    assert waiting == (TWO_OVER_HTTP if uses_http else TWO_PEOPLE)


@pytest.mark.parametrize(
    ("operation", "waits"),
    [
        (SetChain(chain="native", refund_approval_above="5"), True),
        (SetChain(chain="native", refunder=f"0x{40 * '7'}"), True),
        (SetChain(chain="native", sweeper=f"0x{40 * '7'}"), True),
        (SetChain(chain="native", sweep_count=9, sweep_gas_price_max="7"), False),
        (SetChain(chain="native", confirmations=9), True),
        (SetChain(chain="native", confirmations=10_000), False),
        (SetChain(chain="native", auto_refund_gas=3_000_001), True),
        (SetChain(chain="native", auto_refund_gas=2_999_999), False),
        (SetToken(chain="native", symbol="USDT", auto_refund_from="0.99"), True),
        (SetToken(chain="native", symbol="USDT", auto_refund_from="1.01"), False),
        (ChangeAccount(account_id=1, credentials={"signing_secret": "x"}), True),
        (ChangeAccount(account_id=1, name="x"), False),
    ],
)
async def test_some_operations_need_approval_only_for_some_fields(
    stage: Stage, operation: Any, waits: bool
) -> None:
    assert isinstance(await stage.service.submit(operation, ADA), Proposal) is waits


async def test_raising_a_role_needs_approval_and_lowering_it_does_not(stage: Stage) -> None:
    eve = stage.known["token"]
    lowered = await stage.service.submit(SetRole(public_id=eve, role=Role.VIEWER), ADA)
    assert lowered.role is Role.VIEWER
    raised = SetRole(public_id=eve, role=Role.SUPPORT)
    proposal = await stage.service.submit(raised, ADA)
    assert isinstance(proposal, Proposal)
    assert proposal.changes == ["the role of 'Eve' changes from viewer to support"]
    approved = await stage.perform(raised)
    assert approved.role == "support"


async def test_nothing_changes_until_another_person_approves(stage: Stage) -> None:
    before = await _account(stage)
    waiting = await _propose(stage, "account.change")
    assert await _account(stage) == before
    assert [item.id for item in await stage.perform(ListApprovals())][:1] == [waiting.id]
    approved = await stage.service.run_operation(
        Approve(approval_id=waiting.id, note="as agreed"), ALAN
    )
    assert (approved.result["name"], approved.result["base_url"]) == (
        *("theirs", "https://gateway.example.com/v2"),
    )
    view = approved.approval
    assert (view.status, view.proposed_by, view.decided_by, view.note) == (
        *("APPROVED", "Ada", "Alan", "as agreed"),
    )
    assert (await _account(stage)).base_url == "https://gateway.example.com/v2"
    again = Approve(approval_id=waiting.id)
    assert (
        await _refused(stage, again, ALAN, "the proposal is already APPROVED") is ErrorCode.CONFLICT
    )


async def test_a_proposal_describes_the_change_without_secrets(stage: Stage) -> None:
    waiting = await _propose(stage, "account.change")
    account, merchant = stage.known["account"], stage.known["merchant"]
    assert waiting.changes == [
        f"account {account} of merchant {merchant} at fake",
        "its base URL changes from https://gateway.example.com to https://gateway.example.com/v2",
        "its name changes from '' to 'theirs'",
        "its countries change from all countries that its gateway supports to TH",
        "its signing_secret is replaced",
    ]
    rows = await stage.world.rows("SELECT p::text AS row FROM proposal p")
    lines = await stage.world.rows("SELECT details::text AS row FROM audit")
    assert not [row for row in (*rows, *lines) if SECRET in row["row"]]


async def test_every_proposal_describes_each_field(stage: Stage) -> None:
    await stage.world.rows("UPDATE merchant SET activation = 'ACTIVE', activated_at = clock()")
    await stage.perform(SetTaxRate(country="TH", rate=Decimal("0.05")))
    for action in sorted(TWO_OVER_HTTP):
        waiting = await _propose(stage, action, replace(ADA, uses_http=True))
        description = " ".join(waiting.changes)
        for name, value in stage.fields(action).items():
            if isinstance(value, str | int) and name not in {"public_id", "name", "payer_uid"}:
                assert str(value) in description, (action, name)
        approval = await stage.perform(ShowApproval(approval_id=waiting.id))
        assert approval == waiting, action


async def test_a_proposal_is_compared_with_the_current_state(stage: Stage) -> None:
    change = SetChain(chain="native", refund_approval_above="7")
    waiting = make_proposal_view(await stage.service.submit(change, ADA))
    assert waiting.changes == ["refund_approval_above of native changes from 1000 to 7"]
    await stage.perform(SetChain(chain="native", refund_approval_above="3"))
    approval = await stage.perform(ShowApproval(approval_id=waiting.id))
    assert approval.changes == ["refund_approval_above of native changes from 3 to 7"]


async def test_a_proposer_cannot_approve_the_proposal(stage: Stage) -> None:
    waiting = await _propose(stage, "account.change")
    approval = Approve(approval_id=waiting.id)
    for actor, words, code in (
        (ADA, "an operator other than 'Ada', who proposed it", ErrorCode.CONFLICT),
        (
            replace(ALAN, role=Role.FINANCE),
            "account.change requires the admin role",
            ErrorCode.FORBIDDEN,
        ),
        (
            replace(ALAN, role=Role.SUPPORT),
            "approve requires the finance role",
            ErrorCode.FORBIDDEN,
        ),
        (_TERMINAL, "set PAYINTENT_OPERATOR_TOKEN", ErrorCode.FORBIDDEN),
    ):
        assert await _refused(stage, approval, actor, words) is code
    assert (await stage.perform(ShowApproval(approval_id=waiting.id))).status == "WAITING"


async def test_an_operator_who_could_not_approve_a_proposal_cannot_reject_it(stage: Stage) -> None:
    waiting = await _propose(stage, "account.change")
    rejection = Reject(approval_id=waiting.id, note="not theirs")
    finance, words = replace(ALAN, role=Role.FINANCE), "account.change requires the admin role"
    assert await _refused(stage, rejection, finance, words) is ErrorCode.FORBIDDEN
    assert (await stage.perform(ShowApproval(approval_id=waiting.id))).status == "WAITING"


async def test_the_database_requires_two_different_people(stage: Stage) -> None:
    waiting = await _propose(stage, "account.change")
    alone = "UPDATE proposal SET status = 'APPROVED', decided_by = $2, decided_at = clock(), "
    alone += "sealed = NULL WHERE id = $1"
    with pytest.raises(asyncpg.CheckViolationError, match="proposal_two_people"):
        await stage.world.rows(alone, ids.parse_id(ids.APPROVAL, waiting.id), "Ada")


async def test_proposals_of_a_former_operator_cannot_be_approved(stage: Stage) -> None:
    waiting = await _propose(stage, "account.change", replace(ADA, name="Eve"))
    eve, words = stage.known["token"], "'Eve' may no longer propose this"
    approval = Approve(approval_id=waiting.id)
    whole = "role = 'admin', expires_at = clock() + interval '1 day', revoked_at = NULL"
    for change in ("role = 'finance'", "expires_at = clock()", "revoked_at = clock()"):
        await stage.world.rows(f"UPDATE operator_token SET {whole} WHERE public_id = $1", eve)
        await stage.world.rows(f"UPDATE operator_token SET {change} WHERE public_id = $1", eve)
        assert await _refused(stage, approval, ALAN, words) is ErrorCode.CONFLICT, change
    rejected = await stage.perform(Reject(approval_id=waiting.id, note="Eve has left"))
    assert rejected.status == "REJECTED"


async def test_a_rejected_proposal_is_never_run(stage: Stage) -> None:
    before = await _account(stage)
    for actor in (ALAN, ADA):  # rejected by another person or by the proposer
        waiting = await _propose(stage, "account.change")
        rejection = Reject(approval_id=waiting.id, note="not theirs")
        rejected = await stage.service.run_operation(rejection, actor)
        assert (rejected.status, rejected.decided_by, rejected.note) == (
            *("REJECTED", actor.name, "not theirs"),
        )
        approval = Approve(approval_id=waiting.id)
        assert (
            await _refused(stage, approval, ALAN, "the proposal is already REJECTED")
            is ErrorCode.CONFLICT
        )
    assert await _account(stage) == before
    assert {item.status for item in await stage.perform(ListApprovals(status="REJECTED"))} == {
        "REJECTED"
    }


async def test_a_proposal_expires_after_a_day_and_its_arguments_are_deleted(stage: Stage) -> None:
    waiting = await _propose(stage, "account.change")
    lived = waiting.expires_at - waiting.proposed_at
    assert lived.total_seconds() == _DAY_S
    await stage.world.move_clock(_DAY_S + 1)
    for operation in (
        Approve(approval_id=waiting.id),
        Reject(approval_id=waiting.id, note="too late"),
    ):
        words = "the proposal expired after 24 hours"
        assert await _refused(stage, operation, ALAN, words) is ErrorCode.CONFLICT
    lapsed = [item.id for item in await stage.perform(ListApprovals(status="LAPSED"))]
    assert waiting.id in lapsed
    assert len(lapsed) < stage.service.settings.prune_batch_max
    await prune(stage.service.database, stage.service.settings)
    assert await stage.world.rows("SELECT FROM proposal WHERE sealed IS NOT NULL") == []
    assert (await stage.perform(ShowApproval(approval_id=waiting.id))).status == "LAPSED"


async def test_only_one_of_two_concurrent_approvals_succeeds(stage: Stage) -> None:
    """Both approvals have read the proposal as pending, and wait for the lock on the account."""
    waiting = await _propose(stage, "account.change")
    approval = Approve(approval_id=waiting.id)
    async with hold_transaction(
        stage.world, lambda tx: account_store.lock(tx, stage.known["account"])
    ) as first:
        both = [
            asyncio.create_task(stage.service.run_operation(approval, replace(ALAN, name=who)))
            for who in ("Alan", "Bob")
        ]
        await wait_until_blocked(stage.world, *both)
        await first.commit()
        results = await asyncio.gather(*both, return_exceptions=True)
    [refused] = [item for item in results if isinstance(item, RefusedError)]
    assert refused.code is ErrorCode.CONFLICT
    lines = await stage.world.rows("SELECT who FROM audit WHERE action = 'account.change'")
    assert [line["who"] for line in lines] == ["Ada"]


async def test_a_role_that_was_lowered_concurrently_is_not_raised_without_approval(
    stage: Stage,
) -> None:
    """The change was not an increase when it was requested, so it did not need approval."""
    eve = stage.known["token"]
    lower = SetRole(public_id=eve, role=Role.SUPPORT)

    async def become_viewer(tx: Tx) -> None:
        await tokens_store.set_role(tx, eve, Role.VIEWER)

    async with hold_transaction(stage.world, become_viewer) as first:
        task = asyncio.create_task(stage.service.submit(lower, ADA))
        await wait_until_blocked(stage.world, task)
        await first.commit()
        with pytest.raises(RefusedError, match="the role has just been changed"):
            await task
    roles = {token.public_id: token.role for token in await stage.perform(ListOperatorTokens())}
    assert roles[eve] is Role.VIEWER


async def test_only_one_of_two_concurrent_operators_with_the_same_name_is_issued(
    stage: Stage,
) -> None:
    async with hold_transaction(stage.world, lambda tx: _add_admin(tx, "grace", 8 * "a")) as first:
        issue = asyncio.create_task(stage.perform(IssueOperatorToken(name="Grace")))
        await wait_until_blocked(stage.world, issue)
        await first.commit()
        with pytest.raises(RefusedError, match="is or was the name of an operator") as refused:
            await issue
    assert refused.value.code is ErrorCode.CONFLICT


async def test_a_secret_is_shown_to_the_approver_and_not_stored(stage: Stage) -> None:
    uses_http = replace(ADA, uses_http=True)
    for action, name in (("operator.issue", "token"), ("key.issue", "api_key")):
        waiting = await _propose(stage, action, uses_http)
        approved = await stage.service.run_operation(Approve(approval_id=waiting.id), ALAN)
        secret = approved.result[name]
        assert secret
        text = await stage.perform(ShowApproval(approval_id=waiting.id))
        assert secret not in str(text)
        for table in ("proposal", "audit", "operator_token", "api_key"):
            rows = await stage.world.rows(f"SELECT t::text AS row FROM {table} t")
            assert not [row for row in rows if secret in row["row"]]
    waiting = await _propose(stage, "merchant.create", uses_http)
    approved = await stage.service.run_operation(Approve(approval_id=waiting.id), ALAN)
    text = str(await stage.perform(ShowApproval(approval_id=waiting.id)))
    assert not [name for name in ("api_key", "callback_secret") if approved.result[name] in text]
    assert "second server" in {
        item.name for item in await stage.perform(ListApiKeys(merchant_id=stage.known["merchant"]))
    }


async def test_a_single_admin_cannot_get_a_merchants_key_by_registering_the_merchant(
    stage: Stage,
) -> None:
    """Merchant and key are created only after approval, and only the approver sees the key."""
    count = "SELECT (SELECT count(*) FROM merchant) AS m, (SELECT count(*) FROM api_key) AS k"
    [before] = await stage.world.rows(count)
    waiting = await _propose(stage, "merchant.create", replace(ADA, uses_http=True))
    assert "name: Third Shop" in waiting.changes
    assert "the API key and callback secret are shown to the approver" in waiting.changes[-1]
    approval = Approve(approval_id=waiting.id)
    words = "an operator other than 'Ada', who proposed it"
    assert await _refused(stage, approval, ADA, words) is ErrorCode.CONFLICT
    assert await stage.world.rows(count) == [before]
    result = (await stage.service.run_operation(approval, ALAN)).result
    assert set(result) == {"merchant", "api_key", "callback_secret"}
    [after] = await stage.world.rows(count)
    assert (after["m"], after["k"]) == (before["m"] + 1, before["k"] + 1)


async def test_a_proposal_with_modified_arguments_is_not_run(stage: Stage) -> None:
    first = await _propose(stage, "account.change")
    second = await _propose(stage, "chain.set-token")
    await stage.world.rows(
        "UPDATE proposal SET sealed = (SELECT sealed FROM proposal WHERE id = $2) WHERE id = $1",
        ids.parse_id(ids.APPROVAL, first.id),
        ids.parse_id(ids.APPROVAL, second.id),
    )
    with pytest.raises(EncryptionKeyError, match="was encrypted with another key"):
        await stage.service.run_operation(Approve(approval_id=first.id), ALAN)


async def test_a_proposal_under_another_persons_name_is_not_run(stage: Stage) -> None:
    """A person with write access to the database cannot act as a second person."""
    waiting = await _propose(stage, "account.change")
    approval_id = ids.parse_id(ids.APPROVAL, waiting.id)
    await stage.world.rows("UPDATE proposal SET proposed_by = 'Eve' WHERE id = $1", approval_id)
    with pytest.raises(EncryptionKeyError, match="was encrypted with another key"):
        await stage.service.run_operation(Approve(approval_id=waiting.id), ADA)


async def test_a_proposal_survives_a_key_rotation(stage: Stage) -> None:
    waiting = await _propose(stage, "account.change")
    settings = stage.service.settings
    old = settings.keyring.get_secret_value()
    ring = type(settings.keyring)(f"new:{'A' * 43}=,{old}")
    service = await open_service(
        settings.model_copy(update={"keyring": ring}), {"fake": stage.world.gateway}
    )
    try:
        await service.run_operation(RotateKeyring(), ADA)
    finally:
        await service.close()
    ring = type(settings.keyring)(f"new:{'A' * 43}=")
    service = await open_service(
        settings.model_copy(update={"keyring": ring}), {"fake": stage.world.gateway}
    )
    try:
        approved = await service.run_operation(Approve(approval_id=waiting.id), ALAN)
        assert approved.approval.status == "APPROVED"
    finally:
        await service.close()


async def test_an_impossible_operation_is_refused_when_it_is_proposed(stage: Stage) -> None:
    retired = IssueOperatorToken(name="Ada", role=Role.ADMIN)
    assert (
        await _refused(stage, retired, ADA, "is or was the name of an operator")
        is ErrorCode.CONFLICT
    )
    [before] = await stage.world.rows("SELECT count(*) AS n FROM proposal")
    await _refused(
        stage,
        stage.example("chain.add-contract").__class__(
            **{**stage.fields("chain.add-contract"), "chain": "bsc"}
        ),
        ADA,
        "is already registered",
    )
    assert await stage.world.rows("SELECT count(*) AS n FROM proposal") == [before]


async def test_refunds_that_need_approval_are_listed_and_approved_with_the_proposals(
    stage: Stage,
) -> None:
    approvals = {item.id: item for item in await stage.perform(ListApprovals())}
    refund = approvals[stage.known["refund"]]
    assert (refund.action, refund.status, refund.proposed_by) == (
        *("refund", "WAITING", f"merchant:{stage.world.merchant_id}"),
    )
    assert refund.changes == [f"refund 90.00 THB for {stage.known['payment']} through fake"]
    approved = await stage.service.run_operation(Approve(approval_id=refund.id), ALAN)
    assert (approved.result["step"], approved.approval.status) == ("queued", "APPROVED")
    rejection = Reject(approval_id=stage.known["other_refund"], note="asked for twice")
    assert (await stage.service.run_operation(rejection, ALAN)).status == "REJECTED"
    left = {item.id for item in await stage.perform(ListApprovals())}
    assert left == set(approvals) - {refund.id, stage.known["other_refund"]}
    actions = {row["action"] for row in await stage.world.rows("SELECT action FROM audit")}
    assert {"refund.approve", "refund.reject", "approval.approve", "approval.reject"} <= actions


async def test_in_the_sandbox_a_terminal_needs_no_approval_and_a_token_does(world: World) -> None:
    change = ChangeAccount(account_id=world.account_id, credentials={"signing_secret": "x"})
    assert (await world.service.submit(change, _TERMINAL)).id == world.account_id
    await world.operator_token("Ada")
    waiting = await world.service.submit(change, ADA)
    assert isinstance(waiting, Proposal)
    approval = Approve(approval_id=ids.format_id(ids.APPROVAL, waiting.id))
    with pytest.raises(RefusedError, match="an operator other than 'Ada'"):
        await world.service.run_operation(approval, ADA)
    approved = await world.service.run_operation(approval, _TERMINAL)
    assert approved.approval.decided_by == "cli:ada"


async def test_a_terminal_without_a_token_can_issue_only_the_first_two_tokens(
    stage: Stage,
) -> None:
    await stage.world.rows("DELETE FROM operator_token")
    issue = IssueOperatorToken(name="Grace", role=Role.ADMIN)
    viewer = IssueOperatorToken(name="Grace")
    words = "the first two operators must have the admin role"
    assert await _refused(stage, viewer, _TERMINAL, words) is ErrorCode.BAD_REQUEST
    results = await asyncio.gather(
        *(
            stage.service.submit(replace_name(issue, name), _TERMINAL)
            for name in ("Grace", "Edsger", "Barbara")
        ),
        return_exceptions=True,
    )
    [refused] = [item for item in results if isinstance(item, RefusedError)]
    assert (refused.code, "issue only the first two tokens" in refused.message) == (
        *(ErrorCode.FORBIDDEN, True),
    )
    tokens = await stage.perform(ListOperatorTokens())
    assert {token.role for token in tokens} == {Role.ADMIN}
    assert len(tokens) == 2
    await stage.perform(RevokeOperatorToken(public_id=tokens[0].public_id))
    third = IssueOperatorToken(name="Ken", role=Role.ADMIN)
    words = "issue only the first two tokens"
    assert await _refused(stage, third, _TERMINAL, words) is ErrorCode.FORBIDDEN
    for action in OPERATIONS:
        if action != "operator.issue":
            words = "outside the sandbox, set PAYINTENT_OPERATOR_TOKEN"
            code = await _refused(stage, stage.example(action), _TERMINAL, words)
            assert code is ErrorCode.FORBIDDEN, action


async def test_a_third_operator_is_not_issued_concurrently_with_the_second(stage: Stage) -> None:
    await stage.world.rows("DELETE FROM operator_token")

    async def issue_two(tx: Tx) -> None:
        await tokens_store.lock_table(tx)
        for at, name in enumerate(("Grace", "Edsger")):
            await _add_admin(tx, name, f"{at:08}")

    async with hold_transaction(stage.world, issue_two) as first:
        third = IssueOperatorToken(name="Barbara", role=Role.ADMIN)
        task = asyncio.create_task(stage.service.submit(third, _TERMINAL))
        await wait_until_blocked(stage.world, task)
        await first.commit()
        with pytest.raises(RefusedError, match="issue only the first two tokens"):
            await task
    assert len(await stage.perform(ListOperatorTokens())) == 2


async def _add_admin(tx: Tx, name: str, public_id: str) -> None:
    await tokens_store.add(tx, public_id, bytes(32), name=name, role=Role.ADMIN, days=1)


async def test_proposals_and_refunds_are_paginated_in_one_order(stage: Stage) -> None:
    await _propose(stage, "account.change")
    whole = [item.id for item in await stage.perform(ListApprovals())]
    assert {item.partition("_")[0] for item in whole} == {"appr", "ref"}
    for order, place, expected in (
        ("newest", "before", whole),
        ("oldest", "after", whole[::-1]),
    ):
        approval_ids: list[str] = []
        while len(approval_ids) <= len(whole):
            onward = {place: approval_ids[-1]} if approval_ids else {}
            page = await stage.perform(ListApprovals(order=order, limit=1, **onward))
            if not page:
                break
            approval_ids += [item.id for item in page]
        assert approval_ids == expected


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (ListApprovals(before="pay_0351NDickobV3yYH8omp8v"), "is not an id of the form appr_"),
        (ListApprovals(before="ref_"), "is not an id of the form ref_"),
        (ListApprovals(after="appr_0351NDickobV3yYH8omp8v"), "cannot be combined with"),
    ],
)
async def test_an_invalid_cursor_is_refused(stage: Stage, wanted: ListApprovals, said: str) -> None:
    with pytest.raises(RefusedError, match=said):
        await stage.perform(wanted)


def replace_name(issue: IssueOperatorToken, name: str) -> IssueOperatorToken:
    return IssueOperatorToken(name=name, role=issue.role)


async def test_both_names_are_in_the_audit_log(stage: Stage) -> None:
    waiting = await _propose(stage, "account.change")
    await stage.service.run_operation(Approve(approval_id=waiting.id, note="as agreed"), ALAN)
    lines = await stage.world.rows(
        "SELECT who, action, details::text AS details FROM audit ORDER BY at DESC LIMIT 3"
    )
    entries = {line["action"]: (line["who"], json.loads(line["details"])) for line in lines}
    assert entries["approval.propose"][0] == "Ada"
    assert entries["approval.propose"][1]["fields"]["credentials"] == "(hidden)"
    who, details = entries["account.change"]
    assert (who, details["approved_by"], details["approval_id"]) == ("Ada", "Alan", waiting.id)
    assert entries["approval.approve"][0] == "Alan"
    assert entries["approval.approve"][1]["proposed_by"] == "Ada"
    [chain] = [item for item in await stage.perform(ListChains()) if item.slug == "native"]
    assert chain.refund_approval_above == 1000
