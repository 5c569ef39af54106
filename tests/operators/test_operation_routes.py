"""Every operation is a route of the operator port, and no field causes an internal error."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import fields

from payintent.operations import OPERATIONS
from payintent.service import Service
from tests.operators.operator_calls import BAD, WHY, ask, post, reads
from tests.support.arrange import refusal
from tests.support.operation_staging import StageTemplate, stage_of
from tests.support.stage import (
    EXAMPLES,
    TWO_OVER_HTTP,
    Stage,
    open_outside_sandbox,
)
from tests.support.world import Answer, Api, World

pytestmark = pytest.mark.full


@pytest.fixture
async def operated(world: World) -> AsyncIterator[Service]:
    """Outside the sandbox, in which a change needs a reason."""
    async with open_outside_sandbox(world) as service:
        yield service


@pytest.fixture
async def stage(world: World, operated: Service, staged: StageTemplate | None) -> Stage:
    return await stage_of(staged, world, operated)


@pytest.fixture
async def token(stage: Stage) -> str:
    return stage.tokens["Ada"]


async def test_every_operation_can_be_run_over_http(
    operator: Api, stage: Stage, token: str
) -> None:
    for action in EXAMPLES:
        sent = stage.fields(action) | ({} if reads(action) else {"why": "by its route"})
        answer = await ask(operator, token, action, sent)
        assert answer.status == (202 if action in TWO_OVER_HTTP else 200), (action, answer.body)
        assert isinstance(answer.json, dict)
        if answer.status == 202:
            await _approve(operator, stage, answer)
        if action == "operator.replace":
            token = answer.json["token"]
    rows = await stage.world.rows(
        "SELECT who, action FROM audit WHERE why = 'by its route' AND action <> 'approval.propose'"
    )
    assert {row["who"] for row in rows} == {"Ada"}
    assert sorted(row["action"] for row in rows) == sorted(
        action for action in OPERATIONS if not reads(action)
    )


async def _approve(operator: Api, stage: Stage, proposed: Answer) -> Answer:
    """Let Alan approve Ada's proposal."""
    sent = {"approval_id": proposed.json["approval"]["id"], "why": "agreed"}
    answer = await ask(operator, stage.tokens["Alan"], "approval.approve", sent)
    assert answer.status == 200, answer.body
    return answer


async def test_responses_contain_the_result_of_the_operation(
    operator: Api, stage: Stage, token: str
) -> None:
    listed = (await ask(operator, token, "merchant.list", {"limit": 1})).json
    assert [item["id"] for item in listed["data"]] == [stage.known["old_merchant"]]
    shown = await ask(operator, token, "merchant.show", {"merchant_id": stage.known["merchant"]})
    assert (shown.json["name"], shown.json["activation"]) == ("Nimbus Books", "NEW")
    rate = {"country": "TH", "rate": "0.070", "why": WHY}
    approved = await _approve(operator, stage, await ask(operator, token, "tax.set", rate))
    assert approved.json["result"] == {"country": "TH", "rate": "0.07"}
    limit = {"merchant_id": stage.known["merchant"], "kind": "read"}
    await ask(operator, token, "limit.set", limit | {"per_s": 5, "why": WHY})
    assert (await ask(operator, token, "limit.clear", limit | {"why": WHY})).json == {}


async def test_a_dry_run_counts_events_and_changes_nothing(
    operator: Api, stage: Stage, token: str
) -> None:
    [before] = await stage.world.rows("SELECT count(*) AS n FROM audit")
    sent = {"merchant_id": stage.known["old_merchant"], "dry_run": True}
    answer = await ask(operator, token, "webhooks.replay-missed", sent)
    assert (answer.status, answer.json["dry_run"], answer.json["events"]) == (200, True, 4)
    states = await stage.world.rows("SELECT DISTINCT state FROM delivery")
    assert [row["state"] for row in states] == ["skipped"]
    for action, more in (
        ("tax.set", {"country": "TH", "rate": "0.07", "dry_run": True}),
        ("webhooks.replay-missed", sent | {"dry_run": "yes"}),
        ("webhooks.replay-missed", {"dry_run": True}),
    ):
        assert refusal(await ask(operator, token, action, more)) == BAD, action
    assert await stage.world.rows("SELECT count(*) AS n FROM audit") == [before]


async def test_changes_without_a_reason_are_rejected(
    operator: Api, stage: Stage, token: str
) -> None:
    for action in EXAMPLES:
        if not reads(action):
            answer = await ask(operator, token, action, stage.fields(action))
            assert refusal(answer) == BAD
            assert "why is required" in answer.json["message"], action
    path = f"/operator/webhooks/{stage.known['event']}/replay"
    answer = await operator.send("POST", path, headers=operator.bearer(token))
    assert refusal(answer) == BAD
    said = {"json": {"why": WHY}, "headers": operator.bearer(token)}
    assert (await operator.send("POST", path, **said)).status == 200
    assert (await stage.world.rows("SELECT count(*) AS n FROM tax_rate"))[0]["n"] == 0


async def test_read_operations_accept_their_fields_as_query_parameters(
    operator: Api, stage: Stage, token: str
) -> None:
    for action in EXAMPLES:
        if reads(action):
            sent = stage.fields(action)
            assert (await ask(operator, token, action, sent)).status == 200, action
    wanted = {"merchant_id": stage.known["merchant"], "of": "key"}
    [line] = (await ask(operator, token, "audit.list", wanted)).json["data"]
    assert (line["action"], line["who"]) == ("key.issue", "Ada")


async def test_the_request_log_names_the_operator_and_contains_no_secrets(
    operator: Api, stage: Stage, token: str, capfd: pytest.CaptureFixture[str]
) -> None:
    kept = await ask(operator, token, "account.add", stage.fields("account.add") | {"why": WHY})
    issued = await ask(operator, token, "key.issue", stage.fields("key.issue") | {"why": WHY})
    assert (kept.status, issued.status) == (202, 202)
    approved = await _approve(operator, stage, issued)
    told = "".join(capfd.readouterr())
    assert "who=Ada" in told
    for secret in (token, approved.json["result"]["api_key"], "a-credential-of-the-gateway"):
        assert secret not in told


#: What a body may hold where an operation expects something: the odd, the huge, the lying.
_NUMBERS = st.sampled_from(
    [0, -1, 1, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30, 0.5, -0.0, 1e308]
)
_TEXTS = st.sampled_from(
    [
        *("", "\x00", "TH", "US\n", "NaN", "Infinity", "-Infinity", "sNaN", "1e400", "1e-400"),
        *("0.07", "0." + "1" * 60, "1_0", "٠", "x" * 20_000, "\U0010ffff", "\u202e", "null"),
        *("https://example.com:99999", "https://[::1", "http://0x7f.1/", "https://\u2025/"),
        *("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2026-02-30T00:00:00Z"),
        *("COUNTRY", "ADDRESS_VELOCITY", "::/0", "fe80::1%eth0", "@", "a@b", "create", "CRYPTO"),
    ]
)
_VALUES = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _TEXTS | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=6,
) | st.builds(lambda one, many: [one] * many, _TEXTS, st.sampled_from([50, 3_000]))


def _like(value: object) -> st.SearchStrategy[Any]:
    """Generate a value of an example's type, which is processed further, or any value."""
    if isinstance(value, int) or str(value).startswith("$"):
        return _NUMBERS | _TEXTS
    if isinstance(value, list):
        return st.lists(_TEXTS, max_size=3) | _VALUES
    if isinstance(value, dict):
        return st.dictionaries(_TEXTS, _TEXTS, max_size=3) | _VALUES
    return _TEXTS | _VALUES


@st.composite
def _bodies(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """An example with one or two fields replaced."""
    action = draw(st.sampled_from(sorted(OPERATIONS)))
    names = [field.name for field in fields(OPERATIONS[action])] or ["why"]
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    return action, {name: draw(_like(EXAMPLES[action].get(name, ""))) for name in chosen}


async def test_random_field_values_never_cause_an_internal_error(
    operator: Api, stage: Stage, token: str
) -> None:
    loop = asyncio.get_running_loop()
    seen: set[int] = set()

    async def try_with(action: str, changed: dict[str, Any]) -> Answer:
        nonlocal token
        sent = stage.fields(action) | changed
        if reads(action):
            query = {name: str(value)[:2_000] for name, value in sent.items()}
            return await ask(operator, token, action, query)
        raw = json.dumps({"why": WHY} | sent)[:100_000]
        answer = await post(operator, token, action, raw.encode())
        if action == "operator.replace" and answer.status == 200:
            token = answer.json["token"]
        return answer

    @settings(
        max_examples=300,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(_bodies())
    @example(("tax.set", {}))
    @example(("key.issue", {"merchant_id": 0}))
    @example(("merchant.profile", {"locale": 1}))
    def answered(body: tuple[str, dict[str, Any]]) -> None:
        # Hypothesis runs in a thread, and the service in this loop.
        answer = asyncio.run_coroutine_threadsafe(try_with(*body), loop).result(20)
        seen.add(answer.status)
        assert answer.status in {200, 202, 400, 404, 409, 413, 422}, (body, answer.body)

    await asyncio.to_thread(answered)
    assert seen >= {200, 400, 404}
