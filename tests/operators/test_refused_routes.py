"""Rejected requests: a missing token, an unknown operation or object, or invalid fields.

A rejected request changes nothing, so these tests share an installation and a server.
"""

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import fields
from pytest_asyncio import fixture

from payintent.core import access as api_key
from payintent.operations import OPERATIONS
from payintent.operators.operations import RevokeOperatorToken
from tests.operators.operator_calls import BAD, WHY, is_read, post, request_operation, route_of
from tests.support.arrange import refusal
from tests.support.operation_examples import EXAMPLES, Stage, make_stage, open_outside_sandbox
from tests.support.operator_port import operator_port
from tests.support.world import Api, World

LOOP = "module"
pytestmark = pytest.mark.asyncio(loop_scope=LOOP)


@fixture(loop_scope=LOOP, scope=LOOP)
async def installation(shared_world: World) -> AsyncIterator[tuple[Stage, Api]]:
    """Create the example objects outside the sandbox, so that changes need a reason."""
    async with open_outside_sandbox(shared_world) as service:
        stage = await make_stage(shared_world, service)
        async with operator_port(shared_world.service.settings, shared_world, service) as api:
            yield stage, api


@pytest.fixture
def stage(installation: tuple[Stage, Api]) -> Stage:
    return installation[0]


@pytest.fixture
def operator(installation: tuple[Stage, Api]) -> Api:
    return installation[1]


@pytest.fixture
def token(stage: Stage) -> str:
    return stage.tokens["Ada"]


async def test_every_operation_requires_an_operator_token(
    operator: Api, stage: Stage, token: str
) -> None:
    forged = api_key.make_api_key(
        api_key.OPERATOR, token.split("_")[1], "A" * api_key.SECRET_CHARS
    ).text
    revoked = await stage.world.operator_token("Mallory")
    await stage.world.perform(RevokeOperatorToken(public_id=revoked.split("_")[1]))
    keys = [f"Bearer {text}" for text in (stage.world.api_key, "op_x", forged, revoked)]
    for action in EXAMPLES:
        method = "GET" if is_read(action) else "POST"
        for headers in ({}, *({"Authorization": key} for key in keys)):
            answer = await operator.send(method, route_of(action), headers=headers)
            assert refusal(answer) == (401, "UNAUTHORIZED"), action
    assert await stage.world.rows("SELECT * FROM tax_rate") == []


async def test_a_wrong_http_method_returns_405_and_the_allowed_method(
    operator: Api, token: str
) -> None:
    headers = operator.bearer(token)
    for action in EXAMPLES:
        wrong, right = ("POST", "GET") if is_read(action) else ("GET", "POST")
        answer = await operator.send(wrong, route_of(action), headers=headers)
        assert refusal(answer) == (405, "BAD_REQUEST"), action
        assert answer.headers["Allow"] == right, action
    deleted = await operator.send("DELETE", route_of("tax.set"), headers=headers)
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
async def test_an_unknown_operation_returns_404(operator: Api, token: str, path: str) -> None:
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
async def test_a_body_that_is_not_a_json_object_is_rejected(
    operator: Api, token: str, body: bytes
) -> None:
    answer = await post(operator, token, "tax.set", body)
    assert refusal(answer) == BAD
    assert answer.json["message"] == "the body must be a JSON object"


async def test_a_body_that_is_too_large_returns_413(operator: Api, token: str) -> None:
    answer = await post(operator, token, "tax.set", b'{"why":"' + b"x" * 65_536 + b'"}')
    assert refusal(answer) == (413, "BAD_REQUEST")


async def test_errors_name_the_invalid_field(operator: Api, stage: Stage, token: str) -> None:
    for action, kind in OPERATIONS.items():
        if is_read(action):
            continue
        good = stage.fields(action)
        for field in fields(kind):
            wrong = good | {field.name: {"nested": [True]}, "why": WHY}
            answer = await request_operation(operator, token, action, wrong)
            assert refusal(answer) == BAD, (action, field.name)
            assert f"`{field.name}" in answer.json["message"], (action, answer.json)
            if field.required:
                short = {name: value for name, value in good.items() if name != field.name}
                answer = await request_operation(operator, token, action, short | {"why": WHY})
                assert refusal(answer) == BAD
                assert f"`{field.name}`" in answer.json["message"], (action, answer.json)
        answer = await request_operation(operator, token, action, good | {"nome": 1, "why": WHY})
        assert refusal(answer) == BAD
        assert "unknown field `nome`" in answer.json["message"]


@pytest.mark.parametrize("value", [True, 1.0, "1", [1], None])
async def test_a_merchant_id_must_be_an_integer(operator: Api, token: str, value: object) -> None:
    operation_fields = {"merchant_id": value, "name": "x", "why": WHY}
    answer = await request_operation(operator, token, "key.issue", operation_fields)
    assert refusal(answer) == BAD
    assert "`merchant_id`" in answer.json["message"]


@pytest.mark.parametrize("why", [None, 7, ["x"], {}, True])
async def test_a_reason_must_be_a_string(operator: Api, token: str, why: object) -> None:
    operation_fields = {"country": "TH", "rate": "0.07", "why": why}
    answer = await request_operation(operator, token, "tax.set", operation_fields)
    assert (refusal(answer), answer.json["message"]) == (BAD, "why must be a string")


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
async def test_invalid_query_parameters_are_rejected(
    operator: Api, token: str, action: str, query: dict[str, str]
) -> None:
    answer = await request_operation(operator, token, action, query)
    assert refusal(answer) == BAD
    assert len(answer.json["message"]) < 200


@pytest.mark.parametrize("number", [0, -1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**40])
async def test_unknown_ids_are_rejected_by_every_operation(
    operator: Api, stage: Stage, token: str, number: int
) -> None:
    for action, example in EXAMPLES.items():
        for name in example:
            if name.endswith("_id") and name not in {"event_id", "public_id"}:
                operation_fields = stage.fields(action) | {name: number, "why": WHY}
                if is_read(action):
                    del operation_fields["why"]
                answer = await request_operation(operator, token, action, operation_fields)
                assert refusal(answer) in {BAD, (404, "NOT_FOUND")}, (action, name)
