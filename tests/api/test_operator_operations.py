"""Every operation is a route of the operator's port, and no body makes it stumble."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import fields

from payintent.domain import api_key
from payintent.operations.base import ReadOperation
from payintent.operations.operators import RevokeOperatorToken
from payintent.operations.registry import OPERATIONS
from payintent.service import Service
from tests.api.arrange import refusal
from tests.operations.stage import (
    EXAMPLES,
    TWO_OVER_HTTP,
    Stage,
    make_stage,
    out_of_the_sandbox,
)
from tests.support.world import Answer, Api, World

_WHY = "ticket 7"
_BAD = (400, "BAD_REQUEST")


@pytest.fixture
async def operated(world: World) -> AsyncIterator[Service]:
    """No sandbox: a change needs a reason."""
    async with out_of_the_sandbox(world) as service:
        yield service


@pytest.fixture
async def stage(world: World, operated: Service) -> Stage:
    return await make_stage(world, operated)


@pytest.fixture
async def token(stage: Stage) -> str:
    return stage.tokens["Ada"]


def _path(action: str) -> str:
    return f"/operator/{action.replace('.', '/')}"


def _reads(action: str) -> bool:
    return issubclass(OPERATIONS[action], ReadOperation)


async def _ask(api: Api, token: str, action: str, sent: dict[str, Any], **options: Any) -> Answer:
    """Ask for an operation as its kind is asked for: query or body."""
    headers = api.bearer(token)
    if _reads(action):
        query = {name: str(value) for name, value in sent.items()}
        return await api.send("GET", _path(action), params=query, headers=headers, **options)
    return await api.send("POST", _path(action), json=sent, headers=headers, **options)


async def _post(api: Api, token: str, action: str, body: bytes) -> Answer:
    return await api.send("POST", _path(action), data=body, headers=api.bearer(token))


async def test_every_operation_can_be_done_by_its_route(
    operator: Api, stage: Stage, token: str
) -> None:
    for action in EXAMPLES:
        sent = stage.fields(action) | ({} if _reads(action) else {"why": "by its route"})
        answer = await _ask(operator, token, action, sent)
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
        action for action in OPERATIONS if not _reads(action)
    )


async def _approve(operator: Api, stage: Stage, proposed: Answer) -> Answer:
    """Let Alan agree to what Ada has proposed."""
    sent = {"approval_id": proposed.json["approval"]["id"], "why": "agreed"}
    answer = await _ask(operator, stage.tokens["Alan"], "approval.approve", sent)
    assert answer.status == 200, answer.body
    return answer


async def test_what_is_answered_is_what_the_operation_gives(
    operator: Api, stage: Stage, token: str
) -> None:
    listed = (await _ask(operator, token, "merchant.list", {"limit": 1})).json
    assert [one["id"] for one in listed["data"]] == [stage.known["old_merchant"]]
    shown = await _ask(operator, token, "merchant.show", {"merchant_id": stage.known["merchant"]})
    assert (shown.json["name"], shown.json["activation"]) == ("Nimbus Books", "NEW")
    rate = {"country": "TH", "rate": "0.070", "why": _WHY}
    assert (await _ask(operator, token, "tax.set", rate)).json == {"country": "TH", "rate": "0.07"}
    limit = {"merchant_id": stage.known["merchant"], "kind": "read"}
    await _ask(operator, token, "limit.set", limit | {"per_s": 5, "why": _WHY})
    assert (await _ask(operator, token, "limit.clear", limit | {"why": _WHY})).json == {}


async def test_every_operation_needs_an_operators_token(
    operator: Api, stage: Stage, token: str
) -> None:
    forged = api_key.make_api_key(
        api_key.OPERATOR, token.split("_")[1], "A" * api_key.SECRET_CHARS
    ).text
    revoked = await stage.world.operator_token("Mallory")
    await stage.world.perform(RevokeOperatorToken(public_id=revoked.split("_")[1]))
    keys = [f"Bearer {text}" for text in (stage.world.api_key, "op_x", forged, revoked)]
    for action in EXAMPLES:
        method = "GET" if _reads(action) else "POST"
        for headers in ({}, *({"Authorization": key} for key in keys)):
            answer = await operator.send(method, _path(action), headers=headers)
            assert refusal(answer) == (401, "UNAUTHORIZED"), action
    assert await stage.world.rows("SELECT * FROM tax_rate") == []


async def test_a_wrong_method_is_405_and_the_right_one_is_named(operator: Api, token: str) -> None:
    headers = operator.bearer(token)
    for action in EXAMPLES:
        wrong, right = ("POST", "GET") if _reads(action) else ("GET", "POST")
        answer = await operator.send(wrong, _path(action), headers=headers)
        assert refusal(answer) == (405, "BAD_REQUEST"), action
        assert answer.headers["Allow"] == right, action
    deleted = await operator.send("DELETE", _path("tax.set"), headers=headers)
    assert deleted.status == 405


@pytest.mark.parametrize(
    "path",
    [
        "/operator/merchant/burn",
        "/operator/tax/set/",
        "/operator/tax",
        "/operator/tax.set/x",
        "/operator/merchant/set_callback_url",
        "/operator/Tax/Set",
        "/operator/%00/%ff",
    ],
)
async def test_what_is_no_operation_is_404(operator: Api, token: str, path: str) -> None:
    for method in ("GET", "POST"):
        answer = await operator.send(method, path, headers=operator.bearer(token))
        assert refusal(answer) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'"why"',
        b"{",
        b'{"country":"TH"',
        b"\xff",
        b'{"country":"\\ud800","rate":"0","why":"x"}',
        b'{"rate":1e400,"country":"TH","why":"x"}',
        b'{"rate":' + b"9" * 5_000 + b',"country":"TH","why":"x"}',
        b"[" * 60_000,
        b'{"a":' * 10_000,
    ],
    ids=lambda body: body[:20].decode(errors="replace"),
)
async def test_what_is_no_json_object_is_refused(operator: Api, token: str, body: bytes) -> None:
    answer = await _post(operator, token, "tax.set", body)
    assert refusal(answer) == _BAD
    assert answer.json["message"] == "the body must be a JSON object"


async def test_a_body_that_is_too_large_is_413(operator: Api, token: str) -> None:
    answer = await _post(operator, token, "tax.set", b'{"why":"' + b"x" * 65_536 + b'"}')
    assert refusal(answer) == (413, "BAD_REQUEST")


async def test_a_wrong_field_is_named(operator: Api, stage: Stage, token: str) -> None:
    for action, kind in OPERATIONS.items():
        if _reads(action):
            continue
        good = stage.fields(action)
        for one in fields(kind):
            wrong = good | {one.name: {"nested": [True]}, "why": _WHY}
            answer = await _ask(operator, token, action, wrong)
            assert refusal(answer) == _BAD, (action, one.name)
            assert f"`{one.name}" in answer.json["message"], (action, answer.json)
            if one.required:
                short = {name: value for name, value in good.items() if name != one.name}
                answer = await _ask(operator, token, action, short | {"why": _WHY})
                assert refusal(answer) == _BAD
                assert f"`{one.name}`" in answer.json["message"], (action, answer.json)
        answer = await _ask(operator, token, action, good | {"nome": 1, "why": _WHY})
        assert refusal(answer) == _BAD
        assert "unknown field `nome`" in answer.json["message"]


@pytest.mark.parametrize("value", [True, 1.0, "1", [1], None])
async def test_a_number_is_a_number(operator: Api, token: str, value: object) -> None:
    sent = {"merchant_id": value, "name": "x", "why": _WHY}
    answer = await _ask(operator, token, "key.issue", sent)
    assert refusal(answer) == _BAD
    assert "`merchant_id`" in answer.json["message"]


@pytest.mark.parametrize("why", [None, 7, ["x"], {}, True])
async def test_a_reason_is_text(operator: Api, token: str, why: object) -> None:
    sent = {"country": "TH", "rate": "0.07", "why": why}
    answer = await _ask(operator, token, "tax.set", sent)
    assert (refusal(answer), answer.json["message"]) == (_BAD, "why must be text")


async def test_a_dry_run_counts_and_changes_nothing(
    operator: Api, stage: Stage, token: str
) -> None:
    [before] = await stage.world.rows("SELECT count(*) AS n FROM audit")
    sent = {"merchant_id": stage.known["old_merchant"], "dry_run": True}
    answer = await _ask(operator, token, "webhooks.replay-missed", sent)
    assert (answer.status, answer.json["dry_run"], answer.json["events"]) == (200, True, 3)
    states = await stage.world.rows("SELECT DISTINCT state FROM delivery")
    assert [row["state"] for row in states] == ["skipped"]
    for action, more in (
        ("tax.set", {"country": "TH", "rate": "0.07", "dry_run": True}),
        ("webhooks.replay-missed", sent | {"dry_run": "yes"}),
        ("webhooks.replay-missed", {"dry_run": True}),
    ):
        assert refusal(await _ask(operator, token, action, more)) == _BAD, action
    assert await stage.world.rows("SELECT count(*) AS n FROM audit") == [before]


async def test_without_a_reason_nothing_is_changed(operator: Api, stage: Stage, token: str) -> None:
    for action in EXAMPLES:
        if not _reads(action):
            answer = await _ask(operator, token, action, stage.fields(action))
            assert refusal(answer) == _BAD
            assert "say why" in answer.json["message"], action
    path = f"/operator/webhooks/{stage.known['event']}/replay"
    answer = await operator.send("POST", path, headers=operator.bearer(token))
    assert refusal(answer) == _BAD
    said = {"json": {"why": _WHY}, "headers": operator.bearer(token)}
    assert (await operator.send("POST", path, **said)).status == 200
    assert (await stage.world.rows("SELECT count(*) AS n FROM tax_rate"))[0]["n"] == 0


@pytest.mark.parametrize(
    ("action", "query"),
    [
        ("merchant.list", {"limit": "x"}),
        ("merchant.list", {"limit": "0"}),
        ("merchant.list", {"limit": "1.5"}),
        ("merchant.list", {"limit": "9" * 5_000}),
        ("merchant.list", {"limits": "1"}),
        ("merchant.show", {}),
        ("merchant.show", {"merchant_id": ""}),
        ("merchant.show", {"merchant_id": "true"}),
        ("tax.list", {"why": "x"}),
    ],
)
async def test_a_query_is_read_as_strictly(
    operator: Api, token: str, action: str, query: dict[str, str]
) -> None:
    answer = await _ask(operator, token, action, query)
    assert refusal(answer) == _BAD
    assert len(answer.json["message"]) < 200


async def test_a_query_names_what_a_body_would(operator: Api, stage: Stage, token: str) -> None:
    for action in EXAMPLES:
        if _reads(action):
            sent = stage.fields(action)
            assert (await _ask(operator, token, action, sent)).status == 200, action
    wanted = {"merchant_id": stage.known["merchant"], "of": "key"}
    [line] = (await _ask(operator, token, "audit.list", wanted)).json["data"]
    assert (line["action"], line["who"]) == ("key.issue", "Ada")


async def test_the_log_names_who_came_and_holds_no_secret(
    operator: Api, stage: Stage, token: str, capfd: pytest.CaptureFixture[str]
) -> None:
    kept = await _ask(operator, token, "account.add", stage.fields("account.add") | {"why": _WHY})
    issued = await _ask(operator, token, "key.issue", stage.fields("key.issue") | {"why": _WHY})
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
    """Give what has an example's type, so that it gets far, or anything."""
    if isinstance(value, int) or str(value).startswith("$"):
        return _NUMBERS | _TEXTS
    if isinstance(value, list):
        return st.lists(_TEXTS, max_size=3) | _VALUES
    if isinstance(value, dict):
        return st.dictionaries(_TEXTS, _TEXTS, max_size=3) | _VALUES
    return _TEXTS | _VALUES


@st.composite
def _bodies(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """An example, a field or two of which hold something else."""
    action = draw(st.sampled_from(sorted(OPERATIONS)))
    names = [one.name for one in fields(OPERATIONS[action])] or ["why"]
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    return action, {name: draw(_like(EXAMPLES[action].get(name, ""))) for name in chosen}


async def test_no_field_brings_an_operation_down(operator: Api, stage: Stage, token: str) -> None:
    loop = asyncio.get_running_loop()
    seen: set[int] = set()

    async def ask(action: str, changed: dict[str, Any]) -> Answer:
        nonlocal token
        sent = stage.fields(action) | changed
        if _reads(action):
            query = {name: str(value)[:2_000] for name, value in sent.items()}
            return await _ask(operator, token, action, query)
        raw = json.dumps({"why": _WHY} | sent)[:100_000]
        answer = await _post(operator, token, action, raw.encode())
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
        answer = asyncio.run_coroutine_threadsafe(ask(*body), loop).result(20)
        seen.add(answer.status)
        assert answer.status in {200, 202, 400, 404, 409, 413, 422}, (body, answer.body)

    await asyncio.to_thread(answered)
    assert seen >= {200, 400, 404}


@pytest.mark.parametrize("number", [0, -1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**40])
async def test_an_id_that_nothing_has_is_refused_everywhere(
    operator: Api, stage: Stage, token: str, number: int
) -> None:
    for action, known in EXAMPLES.items():
        for name in known:
            if name.endswith("_id") and name not in {"event_id", "public_id"}:
                sent = stage.fields(action) | {name: number, "why": _WHY}
                if _reads(action):
                    del sent["why"]
                answer = await _ask(operator, token, action, sent)
                assert refusal(answer) in {_BAD, (404, "NOT_FOUND")}, (action, name)
