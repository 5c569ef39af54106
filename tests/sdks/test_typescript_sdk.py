"""The TypeScript SDK supports all merchant actions, matches the contract, and retries safely."""

import asyncio
import json
import re
import time
from typing import Any

import pytest

from payintent_sandbox.chains.anvil_binary import npm
from tests.clients.conftest import uses
from tests.clients.expected_results import check_what_was_done
from tests.sdks.contract import list_object_schemas, list_operations, resolve
from tests.sdks.python_sdk import HERE
from tests.sdks.scripted_server import check_retries
from tests.sdks.signed_webhooks import SECRET, webhook, webhook_cases
from tests.sdks.typescript_sdk import TSC, compile_programs, install_sdk, run, run_program
from tests.support.world import Api
from tools.openapi.check import command
from tools.openapi.pack_typescript import PROJECT

__all__ = ["uses"]

pytestmark = [pytest.mark.timeout(310), pytest.mark.full]
_RECEIVED = """
import { receive } from "./receiver.mts";
let text = "";
for await (const chunk of process.stdin) text += chunk;
for (const { body, headers, secrets } of JSON.parse(text)) {
  console.log(await receive(Buffer.from(body, "base64"), headers, secrets[0]));
}
"""
_IN_A_PAGE = """
globalThis.document = {};
const { Client } = await import("payintent-sdk");
new Client({ apiKey: "sk_live_x", baseUrl: "http://localhost" });
"""
_README = (PROJECT / "README.md").read_text()


async def test_the_sdk_supports_all_actions_of_a_merchant(uses: list[str]) -> None:
    printed = await asyncio.to_thread(run_program, "use_typescript.mts", *uses)
    check_what_was_done(json.loads(printed))


async def test_only_safe_requests_are_retried_and_retries_use_the_same_key() -> None:
    await check_retries(lambda calls: run_program("use_retries.mts", text=calls))


def test_only_webhooks_signed_by_the_official_library_are_accepted() -> None:
    cases = webhook_cases()
    results = run_program("use_webhooks.mts", text=json.dumps([case for case, _ in cases])).split()
    assert results == [expected for _, expected in cases]


def test_the_types_match_the_contract() -> None:
    assert compile_programs() == ""


def test_the_declarations_are_valid_with_the_libraries_of_es2020() -> None:
    (install_sdk() / "old.ts").write_text('export * from "payintent-sdk";')
    options = ("--noEmit", "--strict", "--target", "es2020", "--lib", "es2020,dom")
    resolution = ("--module", "esnext", "--moduleResolution", "bundler")
    run(*command(TSC, *options, *resolution, "old.ts"), folder=install_sdk())


def test_the_declarations_are_found_by_compilers_that_do_not_read_exports() -> None:
    source = (
        'export * from "payintent-sdk";\nexport { WebhookReceiver } from "payintent-sdk/testing";'
    )
    (install_sdk() / "node10.ts").write_text(source)
    options = ("--noEmit", "--strict", "--target", "es2022", "--module", "commonjs")
    resolution = ("--moduleResolution", "node10")
    run(*command(TSC, *options, *resolution, "node10.ts"), folder=install_sdk())


def test_a_request_without_a_body_and_headers_is_an_invalid_webhook() -> None:
    program = """
        import { webhooks } from "payintent-sdk";
        const names = ["webhook-id", "webhook-timestamp", "webhook-signature"];
        for (const headers of [{}, Object.fromEntries(names.map((name) => [name, "1"]))]) {
          const verified = webhooks.verify(undefined, headers, process.argv[2]);
          await verified.catch((error) => console.log(error.name));
        }
    """
    (install_sdk() / "empty.mjs").write_text(program)
    assert run_program("empty.mjs", SECRET).split() == ["WebhookHeaderError", "TypeError"]


def test_every_object_and_every_query_of_the_contract_is_compared() -> None:
    types, queries = _compared("Types"), _compared("Queries")
    assert types == list_object_schemas() - {"ApiError", "Denial", "AdvanceTestClock", "Metadata"}
    assert queries == {
        operation["operationId"]
        for operation in list_operations()
        if any(_is_query(parameter) for parameter in operation.get("parameters", ()))
    }


def _compared(interface: str) -> set[str]:
    source = (HERE / "same_types.mts").read_text()
    fields, _, _ = source.partition(f"interface {interface}")[2].partition("\n}")
    return set(re.findall(r"^  (\w+): sdk\.", fields, re.MULTILINE))


def _is_query(parameter: dict[str, Any]) -> bool:
    definition = resolve(parameter["$ref"]) if "$ref" in parameter else parameter
    return definition["in"] == "query"


#: The method of each operation. Further methods are based on these methods.
METHODS = {
    "createPayment": "payments.create",
    "getPayment": "payments.get",
    "listPayments": "payments.list",
    "cancelPayment": "payments.cancel",
    "createRefund": "refunds.create",
    "getRefund": "refunds.get",
    "listRefunds": "refunds.list",
    "listUpdatedRefunds": "refunds.listUpdated",
    "createPaymentLink": "paymentLinks.create",
    "getPaymentLink": "paymentLinks.get",
    "listPaymentLinks": "paymentLinks.list",
    "deactivatePaymentLink": "paymentLinks.deactivate",
    "listEvents": "events.list",
    "replayEvent": "events.replay",
    "listCases": "cases.list",
    "listDisputes": "disputes.list",
    "getBalance": "statements.balance",
    "getStatement": "statements.get",
    "listStatements": "statements.list",
    "getCatalog": "catalog.get",
    "getChain": "onchain.getChain",
    "getOnchainSession": "onchain.getSession",
    "getTestClock": "testClock.get",
    "advanceTestClock": "testClock.advance",
    "payTestPayment": "testPayments.pay",
    "declineTestPayment": "testPayments.decline",
    "disputeTestPayment": "testPayments.dispute",
    "transferToTestPayment": "testPayments.transfer",
}


def test_every_operation_has_a_method_and_the_readme_lists_every_method() -> None:
    assert set(METHODS) == {operation["operationId"] for operation in list_operations()}
    methods = json.loads(run_program("describe_typescript.mts"))
    assert {method for method in methods if "iterate" not in method} == set(METHODS.values())
    for method in methods:
        resource, _, name = method.partition(".")
        [row] = re.findall(rf"^\|.*`{resource}`.*\|.*\|$", _README, re.MULTILINE)
        assert f"`{name}`" in row, method


async def test_the_readmes_quickstart_runs_as_printed(api: Api) -> None:
    quickstart, receiver, _, _ = re.findall(r"```typescript\n(.*?)```", _README, re.DOTALL)
    (install_sdk() / "quickstart.mts").write_text(quickstart)
    printed = await asyncio.to_thread(
        run_program,
        "quickstart.mts",
        PAYINTENT_API_KEY=api.world.api_key,
        PAYINTENT_URL=api.base,
    )
    assert re.fullmatch(r"send the buyer to \S+/c/cs_\S+\npay_\S+ 1590(\.00)? THB\n", printed)
    (install_sdk() / "receiver.mts").write_text(receiver)
    (install_sdk() / "received.mts").write_text(_RECEIVED)
    cases = [webhook(at=int(time.time())), webhook()]
    printed = await asyncio.to_thread(run_program, "received.mts", text=json.dumps(cases))
    assert printed.split() == ["204", "400"]


def test_the_client_refuses_to_run_in_a_browser_bundle_or_a_page() -> None:
    for arguments, message in (
        (("--conditions=browser", "describe_typescript.mts"), "is for servers"),
        (("--eval", _IN_A_PAGE), "never be in a web page"),
    ):
        with pytest.raises(AssertionError, match=message):
            run(npm()[0], *arguments, folder=install_sdk())
