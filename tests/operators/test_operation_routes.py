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
from tests.operators.operator_calls import BAD, WHY, is_read, post, request_operation
from tests.support.arrange import refusal
from tests.support.operation_examples import (
    EXAMPLES,
    TWO_OVER_HTTP,
    Stage,
    open_outside_sandbox,
)
from tests.support.operation_staging import StageTemplate, stage_of
from tests.support.world import Answer, Api, World

pytestmark = pytest.mark.full


@pytest.fixture
async def operated(world: World) -> AsyncIterator[Service]:
    """A service outside the sandbox, so that changes need a reason."""
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
        operation_fields = stage.fields(action) | (
            {} if is_read(action) else {"why": "by its route"}
        )
        answer = await request_operation(operator, token, action, operation_fields)
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
        action for action in OPERATIONS if not is_read(action)
    )


async def _approve(operator: Api, stage: Stage, proposed: Answer) -> Answer:
    """Let Alan approve Ada's proposal."""
    operation_fields = {"approval_id": proposed.json["approval"]["id"], "why": "agreed"}
    answer = await request_operation(
        operator, stage.tokens["Alan"], "approval.approve", operation_fields
    )
    assert answer.status == 200, answer.body
    return answer


async def test_responses_contain_the_result_of_the_operation(
    operator: Api, stage: Stage, token: str
) -> None:
    merchants = (await request_operation(operator, token, "merchant.list", {"limit": 1})).json
    assert [item["id"] for item in merchants["data"]] == [stage.known["old_merchant"]]
    merchant = await request_operation(
        operator, token, "merchant.show", {"merchant_id": stage.known["merchant"]}
    )
    assert (merchant.json["name"], merchant.json["activation"]) == ("Nimbus Books", "NEW")
    rate = {"country": "TH", "rate": "0.070", "why": WHY}
    approved = await _approve(
        operator, stage, await request_operation(operator, token, "tax.set", rate)
    )
    assert approved.json["result"] == {"country": "TH", "rate": "0.07"}
    limit = {"merchant_id": stage.known["merchant"], "kind": "read"}
    await request_operation(operator, token, "limit.set", limit | {"per_s": 5, "why": WHY})
    assert (
        await request_operation(operator, token, "limit.clear", limit | {"why": WHY})
    ).json == {}


async def test_a_dry_run_counts_events_and_changes_nothing(
    operator: Api, stage: Stage, token: str
) -> None:
    [before] = await stage.world.rows("SELECT count(*) AS n FROM audit")
    operation_fields = {"merchant_id": stage.known["old_merchant"], "dry_run": True}
    answer = await request_operation(operator, token, "webhooks.replay-missed", operation_fields)
    assert (answer.status, answer.json["dry_run"], answer.json["events"]) == (200, True, 4)
    states = await stage.world.rows("SELECT DISTINCT state FROM delivery")
    assert [row["state"] for row in states] == ["skipped"]
    for action, invalid_fields in (
        ("tax.set", {"country": "TH", "rate": "0.07", "dry_run": True}),
        ("webhooks.replay-missed", operation_fields | {"dry_run": "yes"}),
        ("webhooks.replay-missed", {"dry_run": True}),
    ):
        assert refusal(await request_operation(operator, token, action, invalid_fields)) == BAD, (
            action
        )
    assert await stage.world.rows("SELECT count(*) AS n FROM audit") == [before]


async def test_changes_without_a_reason_are_rejected(
    operator: Api, stage: Stage, token: str
) -> None:
    for action in EXAMPLES:
        if not is_read(action):
            answer = await request_operation(operator, token, action, stage.fields(action))
            assert refusal(answer) == BAD
            assert "why is required" in answer.json["message"], action
    path = f"/operator/webhooks/{stage.known['event']}/replay"
    answer = await operator.send("POST", path, headers=operator.bearer(token))
    assert refusal(answer) == BAD
    options = {"json": {"why": WHY}, "headers": operator.bearer(token)}
    assert (await operator.send("POST", path, **options)).status == 200
    assert (await stage.world.rows("SELECT count(*) AS n FROM tax_rate"))[0]["n"] == 0


async def test_read_operations_accept_their_fields_as_query_parameters(
    operator: Api, stage: Stage, token: str
) -> None:
    for action in EXAMPLES:
        if is_read(action):
            query = stage.fields(action)
            assert (await request_operation(operator, token, action, query)).status == 200, action
    filters = {"merchant_id": stage.known["merchant"], "of": "key"}
    [entry] = (await request_operation(operator, token, "audit.list", filters)).json["data"]
    assert (entry["action"], entry["who"]) == ("key.issue", "Ada")


async def test_the_request_log_names_the_operator_and_contains_no_secrets(
    operator: Api, stage: Stage, token: str, capfd: pytest.CaptureFixture[str]
) -> None:
    proposed = await request_operation(
        operator, token, "account.add", stage.fields("account.add") | {"why": WHY}
    )
    issued = await request_operation(
        operator, token, "key.issue", stage.fields("key.issue") | {"why": WHY}
    )
    assert (proposed.status, issued.status) == (202, 202)
    approved = await _approve(operator, stage, issued)
    output = "".join(capfd.readouterr())
    assert "who=Ada" in output
    for secret in (token, approved.json["result"]["api_key"], "a-credential-of-the-gateway"):
        assert secret not in output


#: Unusual, huge and invalid field values.
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
) | st.builds(lambda text, many: [text] * many, _TEXTS, st.sampled_from([50, 3_000]))


def _values_like(value: object) -> st.SearchStrategy[Any]:
    """Generate a value of the example's type (which passes validation more often) or any value."""
    if isinstance(value, int) or str(value).startswith("$"):
        return _NUMBERS | _TEXTS
    if isinstance(value, list):
        return st.lists(_TEXTS, max_size=3) | _VALUES
    if isinstance(value, dict):
        return st.dictionaries(_TEXTS, _TEXTS, max_size=3) | _VALUES
    return _TEXTS | _VALUES


@st.composite
def _bodies(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Generate values for one or two fields of an operation."""
    action = draw(st.sampled_from(sorted(OPERATIONS)))
    names = [field.name for field in fields(OPERATIONS[action])] or ["why"]
    field_names = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    return action, {
        name: draw(_values_like(EXAMPLES[action].get(name, ""))) for name in field_names
    }


async def test_random_field_values_never_cause_an_internal_error(
    operator: Api, stage: Stage, token: str
) -> None:
    loop = asyncio.get_running_loop()
    statuses: set[int] = set()

    async def send_with(action: str, changed: dict[str, Any]) -> Answer:
        nonlocal token
        operation_fields = stage.fields(action) | changed
        if is_read(action):
            query = {name: str(value)[:2_000] for name, value in operation_fields.items()}
            return await request_operation(operator, token, action, query)
        raw = json.dumps({"why": WHY} | operation_fields)[:100_000]
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
    def check_response(body: tuple[str, dict[str, Any]]) -> None:
        # Hypothesis runs in a thread, but the service runs in this event loop.
        answer = asyncio.run_coroutine_threadsafe(send_with(*body), loop).result(20)
        statuses.add(answer.status)
        assert answer.status in {200, 202, 400, 404, 409, 413, 422}, (body, answer.body)

    await asyncio.to_thread(check_response)
    assert statuses >= {200, 400, 404}
