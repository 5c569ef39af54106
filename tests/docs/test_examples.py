"""The examples on the pages run, and behave as the surrounding text describes."""

import asyncio
import inspect
import json
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from payintent.gateways.port import Gateway
from payintent.merchants.access_operations import IssueApiKey
from payintent.merchants.callback_secrets import generate_secret
from payintent.merchants.model import encode_secret
from payintent.webhooks.model import sign
from tests.docs.parse_pages import ROOT, blocks, examples, page
from tests.refunds.requests import create_paid, post_refund, process_refunds
from tests.support.world import Api

pytestmark = pytest.mark.full

_KEY, _OTHER_KEY = generate_secret(), generate_secret()
_SECRET = encode_secret(_KEY)
_ID = "01a1fd8e-30f1-7452-8742-48e063df9146"
_BODY = '{"type":"payment.completed","data":{"payment":{"metadata":{"note":"ก"}}}}'.encode()
_VERIFIERS = examples(page("docs/integrate/webhooks.md"), "python", "verify a webhook")


@pytest.fixture(params=_VERIFIERS, ids=["without a library", "with a library"])
def verify(request: pytest.FixtureRequest) -> Any:
    return _run(request.param)["verify"]


def _run(code: str) -> dict[str, Any]:
    scope: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, "example", "exec"), scope)  # noqa: S102 - our own pages
    return scope


def _sign(*keys: bytes, at: float | None = None) -> dict[str, str]:
    sent_at = int(time.time() if at is None else at)
    return {
        "webhook-id": _ID,
        "webhook-timestamp": str(sent_at),
        "webhook-signature": sign(keys, _ID, sent_at, _BODY),
    }


def test_a_genuine_webhook_is_accepted(verify: Any) -> None:
    assert verify(_SECRET, _sign(_KEY), _BODY)


def test_a_webhook_signed_with_an_old_and_a_new_secret_is_accepted(verify: Any) -> None:
    assert verify(_SECRET, _sign(_OTHER_KEY, _KEY), _BODY)


def test_a_modified_body_is_refused(verify: Any) -> None:
    assert not verify(_SECRET, _sign(_KEY), _BODY + b" ")


def test_a_signature_of_another_merchant_is_refused(verify: Any) -> None:
    assert not verify(_SECRET, _sign(_OTHER_KEY), _BODY)


@pytest.mark.parametrize("seconds", [-400, 400])
def test_a_webhook_with_a_distant_timestamp_is_refused(verify: Any, seconds: int) -> None:
    assert not verify(_SECRET, _sign(_KEY, at=time.time() + seconds), _BODY)


@pytest.mark.parametrize("header", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_webhook_with_a_missing_header_is_refused(verify: Any, header: str) -> None:
    headers = _sign(_KEY)
    del headers[header]
    assert not verify(_SECRET, headers, _BODY)


def test_the_verification_has_at_most_fifteen_lines() -> None:
    code = _VERIFIERS[0]
    assert len([line for line in code.splitlines()[1:] if line]) <= 15


async def test_the_curl_example_creates_a_payment(api: Api, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    [create] = examples(page("docs/integrate/payments.md"), "sh", "create")
    exports = f"export API_URL={api.base}/v1 API_KEY={api.world.api_key}\n"
    payment = json.loads(await _run_command("bash", "-euc", exports + create, cwd=tmp_path))
    assert payment["status"] == "PENDING"
    assert payment["metadata"]["order_id"] == "A-1009"


async def test_a_test_payment_is_paid_with_the_request_on_the_page(api: Api) -> None:
    assert "/v1/test/payments/pay_.../pay\n" in page("docs/integrate/testing.md")
    issued = await api.world.perform(IssueApiKey(merchant_id=api.world.merchant_id, test=True))
    headers = api.bearer(issued.api_key) | {"Idempotency-Key": str(uuid4())}
    order = {"currency": "THB", "amount": "1590.00", "payer_uid": "buyer-17"}
    created = await api.send("POST", "/v1/payments", json=order, headers=headers)
    path = f"/v1/test/payments/{created.json['id']}/pay"
    paid_response = await api.send("POST", path, headers=api.bearer(issued.api_key))
    assert paid_response.json["status"] == "PAID"


async def test_the_listing_example_follows_the_cursor_to_the_end(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    payment_ids = [(await api.create(payer_uid="buyer-17")).json["id"] for _ in range(5)]
    await api.create(payer_uid="buyer-18")
    payments = _run_example(api, monkeypatch, "list payments")["payments"]
    listing = await asyncio.to_thread(lambda: list(payments(payer_uid="buyer-17", limit=2)))
    assert [item["id"] for item in listing] == payment_ids[::-1]


async def test_the_catalog_example_reuses_the_catalog_until_it_changes(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = _run_example(api, monkeypatch, "read the catalog")["catalog"]
    etag, first = await asyncio.to_thread(catalog)
    assert first["countries"]
    same_etag, same = await asyncio.to_thread(catalog, etag, first)
    assert (same_etag, same) == (etag, first)
    assert same is first
    await api.world.rows("UPDATE payment_method SET currencies = '{THB}'")
    _, changed = await asyncio.to_thread(catalog, etag, first)
    assert [country["country_code"] for country in changed["countries"]] == ["TH"]


async def test_the_refund_example_creates_a_refund_and_polls_until_it_ends(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    created, part, rest = await create_paid(api), str(uuid4()), str(uuid4())
    refund = _run_example(api, monkeypatch, "refund a payment")["refund"]
    for key, amount, status in (
        (part, "90.00", "PARTIALLY_REFUNDED"),
        (part, "90.00", "PARTIALLY_REFUNDED"),  # the same refund again
        (rest, None, "REFUNDED"),
    ):
        task = asyncio.create_task(
            asyncio.to_thread(refund, created.json["id"], key, amount, wait_s=0.01)
        )
        while not task.done():
            await process_refunds(api.world)
            await asyncio.sleep(0.01)
        result = await task
        assert (result["status"], result["amount"]) == ("SUCCEEDED", amount or "1500.00")
        assert (await api.get(created.json["id"])).json["status"] == status


@dataclass
class Shop:
    """A merchant's server that stores handled events and a cursor."""

    after: str = ""
    refunds_since: str = "2026-01-01T00:00:00Z"
    events: dict[str, str] = field(default_factory=dict)
    refunds: dict[str, str] = field(default_factory=dict)
    payments: dict[str, str] = field(default_factory=dict)
    overdue_ids: list[str] = field(default_factory=list)

    def handle_event(self, event_id: str, event: Any) -> None:
        assert event_id not in self.events
        self.events[event_id] = event["data"]["payment"]["id"]

    def handle_refund(self, refund_id: str, status: str) -> None:
        self.refunds[refund_id] = status

    def overdue(self) -> list[str]:
        return self.overdue_ids

    def handle_payment(self, payment: Any) -> None:
        self.payments[payment["id"]] = payment["status"]


async def test_the_recovery_example_processes_missed_events_and_refunds(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    recover, shop = _run_example(api, monkeypatch, "recover after an outage")["recover"], Shop()
    payment_ids = [(await create_paid(api)).json["id"] for _ in range(3)]
    await asyncio.to_thread(recover, shop)
    assert list(shop.events.values()) == payment_ids
    payment_ids += [(await create_paid(api)).json["id"] for _ in range(2)]
    refund = (await post_refund(api, await create_paid(api), amount="90.00")).json
    shop.overdue_ids.append(refund["payment_id"])
    await process_refunds(api.world)
    await asyncio.to_thread(recover, shop)
    assert list(shop.events.values()) == [*payment_ids, refund["payment_id"]]
    assert shop.refunds == {refund["id"]: "SUCCEEDED"}
    assert shop.payments == {refund["payment_id"]: "PARTIALLY_REFUNDED"}


def _run_example(api: Api, monkeypatch: pytest.MonkeyPatch, title: str) -> dict[str, Any]:
    monkeypatch.setenv("API_URL", f"{api.base}/v1")
    monkeypatch.setenv("API_KEY", api.world.api_key)
    guides = "\n".join(path.read_text() for path in sorted(ROOT.glob("docs/integrate/*.md")))
    [code] = examples(guides, "python", title)
    return _run(code)


async def _run_command(*command: str, cwd: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return output.decode()


def _example_gateway() -> Any:
    codes = blocks(page("docs/contribute/add-a-gateway.md"), "python")
    [code] = [code for code in codes if "class ExamplePay" in code]
    return _run(code)["ExamplePay"]


# tests/conformance/example_harness.py runs the conformance tests on this gateway.
def test_the_example_gateway_has_the_methods_of_the_port() -> None:
    example = _example_gateway()
    assert isinstance(example.provider, str)
    methods = [name for name in vars(Gateway) if not name.startswith("_")]
    assert {"create_session", "close_session", "inquire"} < set(methods)
    for method in methods:
        signature = inspect.signature(getattr(example, method), eval_str=False)
        assert list(signature.parameters) == list(
            inspect.signature(getattr(Gateway, method)).parameters
        )
