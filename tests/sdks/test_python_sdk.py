"""The Python SDK supports all merchant actions and the whole contract, and retries safely."""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import uses
from tests.clients.expected_results import check_what_was_done
from tests.sdks.contract import (
    fields_of,
    list_object_schemas,
    list_operations,
    resolve,
    snake,
)
from tests.sdks.python_sdk import CLI_PROJECT, HERE, PROJECT, PYTHON, run_program
from tests.sdks.scripted_server import GOOD, check_retries, scripted
from tests.sdks.signed_webhooks import webhook, webhook_cases
from tests.support.world import Api

pytestmark = pytest.mark.full

__all__ = ["uses"]

_README = (PROJECT / "README.md").read_text()
#: Parameters that the SDK sets automatically.
_SET_BY_THE_SDK = {"if_none_match"}
_ENVELOPES = {
    "PaymentLinkList",
    "PaymentList",
    "RefundList",
    "CaseList",
    "DisputeList",
    "StatementList",
}  # represented by `Page`
_REQUESTS = {  # parameters of methods
    "CreatePayment",
    "CreatePaymentLink",
    "CreateRefund",
    "AdvanceTestClock",
    "PayTestPayment",
    "DeclineTestPayment",
    "DisputeTestPayment",
    "TransferToTestPayment",
}
_ERRORS = {"ApiError", "Denial"}
#: Events whose body has no id. The id is in the `webhook-id` header or in the feed entry.
_IN_A_HEADER = {"PaymentCompleted", "PaymentFailed", "PaymentExpired", "PaymentCancelled"}


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_the_sdk_supports_all_actions_of_a_merchant(uses: list[str], mode: str) -> None:
    printed = await asyncio.to_thread(run_program, "use_python.py", mode, *uses)
    check_what_was_done(json.loads(printed))


def test_the_types_are_correct_for_the_oldest_supported_python(tmp_path: Path) -> None:
    settings = {
        "include": [
            str(PROJECT / "payintent_sdk"),
            str(HERE / "use_python.py"),
            str(HERE / "use_receiver.py"),
            str(CLI_PROJECT / "payintent_cli"),
        ],
        "extraPaths": [str(PROJECT), str(CLI_PROJECT), str(Path(pytest.__file__).parents[1])],
        "pythonVersion": "3.10",
        "typeCheckingMode": "strict",
        "reportPrivateUsage": False,
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    result = subprocess.run(
        [Path(sys.executable).parent / "basedpyright", "--level", "error", "--pythonpath", PYTHON],
        cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout


@cache
def describe_sdk() -> dict[str, Any]:
    return json.loads(run_program("describe_python.py"))


def test_every_merchant_operation_has_a_method_with_all_its_parameters() -> None:
    for operation in list_operations():
        name = snake(operation["operationId"])
        parameters = {
            snake(parameter["name"])
            for parameter in map(_parameter, operation.get("parameters", ()))
        } | set(operation["parts"])
        body = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if body:
            parameters |= fields_of(body["schema"]["$ref"].rpartition("/")[2])
        sdk_parameters = set(describe_sdk()["operations"].get(name, ()))
        assert sdk_parameters == parameters - _SET_BY_THE_SDK, f"sdks/python, calls.py: {name}"


def _parameter(value: dict[str, Any]) -> dict[str, Any]:
    return resolve(value["$ref"]) if "$ref" in value else value


def test_both_clients_have_the_same_methods_and_cover_every_call() -> None:
    methods, async_methods = describe_sdk()["methods"]
    assert methods == async_methods
    calls = {method for method in methods if "iterate" not in method}
    assert len(calls) == len(describe_sdk()["operations"])


def test_every_object_has_a_class_with_all_its_fields() -> None:
    names = list_object_schemas() - _ENVELOPES - _REQUESTS - _ERRORS - {"Metadata"}
    assert len(names) > 25
    classes = describe_sdk()["classes"]
    for name in sorted(names):
        fields = fields_of(name) | ({"id"} if name in _IN_A_HEADER else set())
        assert set(classes.get(name, ())) == fields, f"sdks/python, models.py: {name}"


async def test_only_safe_requests_are_retried_and_retries_use_the_same_key() -> None:
    await check_retries(lambda calls: run_program("use_retries.py", text=calls))


async def test_the_asynchronous_client_times_out_on_a_slowly_dripping_response() -> None:
    async with scripted("drip", GOOD) as server:
        output = await asyncio.to_thread(run_program, "use_retries.py", server.url)
    assert (output, len(server.keys)) == ("1\n", 2)


def test_the_delay_is_limited_after_any_number_of_attempts(tmp_path: Path) -> None:
    program = tmp_path / "wait.py"
    program.write_text(
        "from payintent_sdk import RetryPolicy\n"
        "policy = RetryPolicy(tries=10**6, wait_max_s=8.0, chance=lambda: 1.0)\n"
        "print(*(policy.wait_s(tried, 0, None) for tried in (1, 2, 6, 7, 2_000)))\n"
    )
    assert run_program(str(program)).split() == ["0.25", "0.5", "8.0", "8.0", "8.0"]


def test_only_webhooks_signed_by_the_official_library_are_accepted() -> None:
    cases = webhook_cases()
    text = json.dumps([case for case, _ in cases])
    results = run_program("use_webhooks.py", text=text).split()
    assert results == [expected for _, expected in cases]


async def test_the_readmes_quickstart_runs_as_printed(api: Api, tmp_path: Path) -> None:
    quickstart, receiver, _, _ = re.findall(r"```python\n(.*?)```", _README, re.DOTALL)
    (tmp_path / "quickstart.py").write_text(quickstart)
    printed = await asyncio.to_thread(
        run_program,
        str(tmp_path / "quickstart.py"),
        PAYINTENT_API_KEY=api.world.api_key,
        PAYINTENT_URL=api.base,
    )
    assert re.fullmatch(r"send the buyer to \S+/c/cs_\S+\npay_\S+ 1590(\.00)? THB\n", printed)
    expired = webhook()
    (tmp_path / "receiver.py").write_text(
        f"{receiver}\nimport base64, json, sys\ncase = json.load(sys.stdin)\n"
        'print(receive(base64.b64decode(case["body"]), case["headers"], case["secrets"][0]))\n'
    )
    recent = webhook(at=int(time.time()))
    answers = [
        await asyncio.to_thread(run_program, str(tmp_path / "receiver.py"), text=json.dumps(item))
        for item in (recent, expired)
    ]
    assert [int(answer) for answer in answers] == [204, 400]


def test_the_readme_names_every_method() -> None:
    methods, _ = describe_sdk()["methods"]
    for method in methods:
        resource, _, name = method.partition(".")
        [row] = re.findall(rf"^\|.*`{resource}`.*\|.*\|$", _README, re.MULTILINE)
        assert f"`{name}`" in row, method
