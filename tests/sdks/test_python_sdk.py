"""The Python SDK does what a merchant does, knows the whole contract, and tries again safely."""

import asyncio
import base64
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from standardwebhooks import Webhook

from tests.clients.conftest import uses
from tests.clients.uses import check_what_was_done
from tests.sdks.python_sdk import CLI_PROJECT, HERE, PROJECT, PYTHON, ROOT, run_program
from tests.support.world import Api

__all__ = ["uses"]

_README = (PROJECT / "README.md").read_text()
#: Fields of requests that are headers for the SDK's user, or that it sets by itself.
_SET_BY_THE_SDK = {"if_none_match"}
_ENVELOPES = {"PaymentList", "RefundList", "CaseList", "DisputeList", "StatementList"}  # `Page`
_REQUESTS = {"CreatePayment", "CreateRefund", "AdvanceTestClock"}  # parameters of methods
_ERRORS = {"ApiError"}


@pytest.mark.parametrize("how", ["sync", "async"])
async def test_it_does_all_that_a_merchant_does(uses: list[str], how: str) -> None:
    printed = await asyncio.to_thread(run_program, "use_python.py", how, *uses)
    check_what_was_done(json.loads(printed))


def test_its_types_are_right_for_the_oldest_python_it_promises(tmp_path: Path) -> None:
    settings = {
        "include": [
            str(PROJECT / "payintent_sdk"),
            str(HERE / "use_python.py"),
            str(CLI_PROJECT / "payintent_cli"),
        ],
        "extraPaths": [str(PROJECT), str(CLI_PROJECT)],
        "pythonVersion": "3.10",
        "typeCheckingMode": "strict",
        "reportPrivateUsage": False,
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    checked = subprocess.run(
        [Path(sys.executable).parent / "basedpyright", "--level", "error", "--pythonpath", PYTHON],
        cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout


@cache
def contract() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "docs/openapi.yaml").read_text())


@cache
def described() -> dict[str, Any]:
    return json.loads(run_program("describe_python.py"))


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|-", "_", name).lower()


def operations() -> Iterator[dict[str, Any]]:
    """Give the operations of the contract that need a merchant's key."""
    for path, methods in contract()["paths"].items():
        for operation in methods.values():
            if isinstance(operation, dict) and {"merchantKey": []} in operation.get("security", []):
                yield operation | {"parts": re.findall(r"\{(\w+)\}", path)}


def fields_of(schema: str) -> set[str]:
    return set(contract()["components"]["schemas"][schema].get("properties", ()))


def object_schemas() -> set[str]:
    """Give the schemas of objects that merchants' operations and webhooks carry."""
    found: set[str] = set()
    pending: list[Any] = [*operations(), contract()["webhooks"]]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += value
        elif isinstance(value, dict):
            pending += value.values()
            name = str(value.get("$ref", ""))
            target = _resolved(name) if name else None
            if name.startswith("#/components/schemas/"):
                if name in found:
                    continue
                found.add(name)
            if target is not None:
                pending.append(target)
    names = {name.rpartition("/")[2] for name in found}
    return {name for name in names if fields_of(name)}


def _resolved(reference: str) -> Any:
    value: Any = contract()
    for part in reference.removeprefix("#/").split("/"):
        value = value[part]
    return value


def test_it_has_a_method_for_every_operation_of_a_merchant_with_all_its_parameters() -> None:
    for operation in operations():
        name = snake(operation["operationId"])
        parameters = {
            snake(parameter["name"])
            for parameter in map(_parameter, operation.get("parameters", ()))
        } | set(operation["parts"])
        body = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if body:
            parameters |= fields_of(body["schema"]["$ref"].rpartition("/")[2])
        has = set(described()["operations"].get(name, ()))
        assert has == parameters - _SET_BY_THE_SDK, f"sdks/python, calls.py: {name}"


def _parameter(value: dict[str, Any]) -> dict[str, Any]:
    return _resolved(value["$ref"]) if "$ref" in value else value


def test_both_clients_have_the_same_methods_and_every_call_is_one_of_them() -> None:
    methods, of_async = described()["methods"]
    assert methods == of_async
    listed = {method for method in methods if "iterate" not in method}
    assert len(listed) == len(described()["operations"])


def test_it_has_a_class_for_every_object_with_all_its_fields() -> None:
    names = object_schemas() - _ENVELOPES - _REQUESTS - _ERRORS - {"Metadata"}
    assert len(names) > 25
    classes = described()["classes"]
    for name in sorted(names):
        assert set(classes.get(name, ())) == fields_of(name), f"sdks/python, models.py: {name}"


@dataclass
class Scripted:
    """A server that gives one answer after another, and keeps what it was sent."""

    answers: list[Any]
    url: str = ""
    keys: list[str | None] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.keys.append(request.headers.get("Idempotency-Key"))
        await request.read()
        answer = self.answers.pop(0)
        if answer == "reset":
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if answer == "silence":
            await asyncio.sleep(30)
            return web.Response()
        status, headers, body = answer
        return web.json_response(body, status=status, headers=headers)


@asynccontextmanager
async def scripted(*answers: Any):
    server = Scripted(list(answers))
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


def refusal(status: int, code: str, **headers: str) -> tuple[int, dict[str, str], Any]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return status, named, {"code": code, "message": "x"}


_AT = datetime(2026, 1, 2, tzinfo=UTC).isoformat().replace("+00:00", "Z")
_PAYMENT = {
    **dict.fromkeys(("id", "checkout_id", "checkout_url", "status", "currency", "amount"), "1"),
    **dict.fromkeys(("payer_uid", "tax_amount", "refunded_amount", "tax_manager"), "1"),
    **dict.fromkeys(("created_at", "updated_at", "expires_at"), _AT),
    "merchant_id": 1,
    "include_pegged_assets": False,
    "metadata": {},
    "what_a_newer_service_adds": {"x": 1},
}
GOOD = (200, {}, _PAYMENT)
AWAY = refusal(503, "SERVICE_UNAVAILABLE")
BUSY = refusal(409, "CONFLICT", Retry_After="0")


#: Which call is made, what the server answers, how the call ends, and how often it was sent.
_RETRIES: list[tuple[str, list[Any], Any, int]] = [
    ("create", [AWAY, GOOD], "1", 2),
    ("create", ["reset", GOOD], "1", 2),
    ("create", ["silence", GOOD], "1", 2),
    ("create", [BUSY, refusal(429, "RATE_LIMITED", Retry_After="0"), GOOD], "1", 3),
    ("create", [AWAY, AWAY, AWAY, GOOD], ["ServiceError", None], 3),
    ("create", [refusal(429, "RATE_LIMITED", Retry_After="60")], ["RateLimitedError", 60], 1),
    ("create", [refusal(409, "IDEMPOTENCY_CONFLICT")], ["IdempotencyConflictError", None], 1),
    ("create", [refusal(422, "INVALID_AMOUNT")], ["InvalidAmountError", None], 1),
    ("create", [refusal(418, "A_NEW_CODE")], ["ApiError", None], 1),
    ("create", [(502, {}, "a page")] * 3, ["UnreadableAnswerError", None], 3),
    ("float", [], ["TypeError", None], 0),
    ("get", ["reset", AWAY, GOOD], "1", 3),
    ("get", ["reset"] * 3, ["NoAnswerError", None], 3),
    ("replay", ["reset"], ["NoAnswerError", None], 1),
    ("replay", [AWAY], ["ServiceError", None], 1),
]


async def test_it_tries_again_with_the_same_key_where_that_is_safe_and_nowhere_else() -> None:
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(scripted(*answers)) for _, answers, _, _ in _RETRIES
        ]
        calls = [
            (server.url, 0.5 if "silence" in answers else 20.0, kind)
            for server, (kind, answers, _, _) in zip(servers, _RETRIES, strict=True)
        ]
        program = partial(run_program, "use_retries.py", text=json.dumps(calls))
        endings = json.loads(await asyncio.to_thread(program))
    for case, server, ending in zip(_RETRIES, servers, endings, strict=True):
        kind, _, expected, sent = case
        assert (ending, len(server.keys)) == (expected, sent), case
        assert len(set(server.keys)) == min(sent, 1), case
        assert all((key is not None) == (kind == "create") for key in server.keys), case


SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
OTHER = "whsec_" + base64.b64encode(b"o" * 32).decode()
NOW = 1_790_000_000
_EVENT = {"type": "payment.expired", "timestamp": _AT, "data": {"payment": {
    **dict.fromkeys(("id", "status", "currency", "amount", "payer_uid"), "1"),
    "expired_at": _AT, "metadata": {},
}}}  # fmt: skip


def webhook(
    body: str = json.dumps(_EVENT), secret: str = SECRET, at: int = NOW, **changes: str | None
) -> dict[str, Any]:
    """Sign a webhook with the official library, and change some of its headers."""
    signature = Webhook(secret).sign("msg_1", datetime.fromtimestamp(at, UTC), body)
    headers = {"Webhook-Id": "msg_1", "Webhook-Timestamp": str(at), "Webhook-Signature": signature}
    headers |= {name.replace("_", "-"): value for name, value in changes.items()}
    return {
        "body": base64.b64encode(body.encode()).decode(),
        "headers": {name: value for name, value in headers.items() if value is not None},
        "secrets": [SECRET],
        "now": NOW,
    }


def test_it_believes_the_webhooks_that_the_official_library_signs_and_no_others() -> None:
    good = webhook()
    signature = good["headers"]["Webhook-Signature"]
    cases = [
        (good, "payment.expired"),
        (webhook(Webhook_Signature=f"v1a,x v1,AAAA {signature}"), "payment.expired"),
        (webhook(secret=OTHER) | {"secrets": [SECRET, OTHER]}, "payment.expired"),
        (webhook(json.dumps({"type": "payment.dreamt", "data": {"x": 1}})), "payment.dreamt"),
        (webhook(secret=OTHER), "WebhookSignatureError"),
        (good | {"body": base64.b64encode(b"{}").decode()}, "WebhookSignatureError"),
        (webhook(Webhook_Id="msg_2"), "WebhookSignatureError"),
        (webhook(Webhook_Signature="v1,%%%"), "WebhookSignatureError"),
        (webhook(Webhook_Signature=signature.replace("v1,", "v2,")), "WebhookSignatureError"),
        (good | {"secrets": []}, "WebhookSignatureError"),
        (webhook(at=NOW - 301), "WebhookTimeError"),
        (webhook(at=NOW + 301), "WebhookTimeError"),
        (webhook(at=NOW - 299), "payment.expired"),
        (webhook(Webhook_Timestamp="1e9"), "WebhookHeaderError"),
        (webhook(Webhook_Timestamp=None), "WebhookHeaderError"),
        (webhook(Webhook_Id=""), "WebhookHeaderError"),
        (webhook("[]"), "WebhookBodyError"),
        (webhook("no json"), "WebhookBodyError"),
        (webhook(json.dumps({"type": "payment.expired", "data": 1})), "WebhookBodyError"),
    ]
    text = json.dumps([case for case, _ in cases])
    found = run_program("use_webhooks.py", text=text).split()
    assert found == [expected for _, expected in cases]


async def test_the_readmes_quickstart_runs_as_printed(api: Api, tmp_path: Path) -> None:
    quickstart, receiver = re.findall(r"```python\n(.*?)```", _README, re.DOTALL)
    (tmp_path / "quickstart.py").write_text(quickstart)
    printed = await asyncio.to_thread(
        run_program,
        str(tmp_path / "quickstart.py"),
        PAYINTENT_KEY=api.world.api_key,
        PAYINTENT_URL=api.base,
    )
    assert re.fullmatch(r"send the buyer to \S+/c/cs_\S+\npay_\S+ 1590(\.00)? THB\n", printed)
    case = webhook()
    (tmp_path / "receiver.py").write_text(
        f"{receiver}\nimport base64, json, sys\ncase = json.load(sys.stdin)\n"
        'print(receive(base64.b64decode(case["body"]), case["headers"], case["secrets"][0]))\n'
    )
    fresh = webhook(at=int(time.time()))
    answers = [
        await asyncio.to_thread(run_program, str(tmp_path / "receiver.py"), text=json.dumps(one))
        for one in (fresh, case)
    ]
    assert [int(answer) for answer in answers] == [204, 400]


def test_the_readme_names_every_method() -> None:
    methods, _ = described()["methods"]
    for method in methods:
        resource, _, name = method.partition(".")
        [row] = re.findall(rf"^\|.*`{resource}`.*\|.*\|$", _README, re.MULTILINE)
        assert f"`{name}`" in row, method
