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
from tests.docs.reading import ROOT, blocks, examples, page
from tests.refunds.requests import ask, paid, send
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


def _signed(*keys: bytes, at: float | None = None) -> dict[str, str]:
    sent_at = int(time.time() if at is None else at)
    return {
        "webhook-id": _ID,
        "webhook-timestamp": str(sent_at),
        "webhook-signature": sign(keys, _ID, sent_at, _BODY),
    }


def test_a_webhook_of_ours_is_verified(verify: Any) -> None:
    assert verify(_SECRET, _signed(_KEY), _BODY)


def test_a_webhook_that_an_old_and_a_new_secret_signed_is_verified(verify: Any) -> None:
    assert verify(_SECRET, _signed(_OTHER_KEY, _KEY), _BODY)


def test_a_changed_body_is_refused(verify: Any) -> None:
    assert not verify(_SECRET, _signed(_KEY), _BODY + b" ")


def test_another_merchants_signature_is_refused(verify: Any) -> None:
    assert not verify(_SECRET, _signed(_OTHER_KEY), _BODY)


@pytest.mark.parametrize("seconds", [-400, 400])
def test_a_webhook_of_another_time_is_refused(verify: Any, seconds: int) -> None:
    assert not verify(_SECRET, _signed(_KEY, at=time.time() + seconds), _BODY)


@pytest.mark.parametrize("header", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_webhook_without_one_of_its_headers_is_refused(verify: Any, header: str) -> None:
    headers = _signed(_KEY)
    del headers[header]
    assert not verify(_SECRET, headers, _BODY)


def test_the_verification_has_no_more_than_fifteen_lines() -> None:
    code = _VERIFIERS[0]
    assert len([line for line in code.splitlines()[1:] if line]) <= 15


async def test_the_create_with_curl_makes_a_payment(api: Api, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    [create] = examples(page("docs/integrate/payments.md"), "sh", "create")
    exports = f"export API_URL={api.base}/v1 API_KEY={api.world.api_key}\n"
    payment = json.loads(await _output("bash", "-euc", exports + create, cwd=tmp_path))
    assert payment["status"] == "PENDING"
    assert payment["metadata"]["order_id"] == "A-1009"


async def test_a_test_payment_is_paid_with_the_request_that_the_page_names(api: Api) -> None:
    assert "/v1/test/payments/pay_.../pay\n" in page("docs/integrate/testing.md")
    issued = await api.world.perform(IssueApiKey(merchant_id=api.world.merchant_id, test=True))
    headers = api.bearer(issued.api_key) | {"Idempotency-Key": str(uuid4())}
    order = {"currency": "THB", "amount": "1590.00", "payer_uid": "buyer-17"}
    created = await api.send("POST", "/v1/payments", json=order, headers=headers)
    path = f"/v1/test/payments/{created.json['id']}/pay"
    paid = await api.send("POST", path, headers=api.bearer(issued.api_key))
    assert paid.json["status"] == "PAID"


async def test_the_listing_follows_the_cursor_to_the_end(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [(await api.create(payer_uid="buyer-17")).json["id"] for _ in range(5)]
    await api.create(payer_uid="buyer-18")
    payments = _calling(api, monkeypatch, "list payments")["payments"]
    listed = await asyncio.to_thread(lambda: list(payments(payer_uid="buyer-17", limit=2)))
    assert [item["id"] for item in listed] == made[::-1]


async def test_the_catalog_is_kept_while_nothing_changes(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = _calling(api, monkeypatch, "read the catalog")["catalog"]
    etag, known = await asyncio.to_thread(catalog)
    assert known["countries"]
    same_etag, same = await asyncio.to_thread(catalog, etag, known)
    assert (same_etag, same) == (etag, known)
    assert same is known
    await api.world.rows("UPDATE payment_method SET currencies = '{THB}'")
    _, changed = await asyncio.to_thread(catalog, etag, known)
    assert [country["country_code"] for country in changed["countries"]] == ["TH"]


async def test_the_refund_is_asked_for_and_read_until_it_has_ended(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    created, part, rest = await paid(api), str(uuid4()), str(uuid4())
    refund = _calling(api, monkeypatch, "refund a payment")["refund"]
    for key, amount, status in (
        (part, "90.00", "PARTIALLY_REFUNDED"),
        (part, "90.00", "PARTIALLY_REFUNDED"),  # the same one again
        (rest, None, "REFUNDED"),
    ):
        asked = asyncio.create_task(
            asyncio.to_thread(refund, created.json["id"], key, amount, wait_s=0.01)
        )
        while not asked.done():
            await send(api.world)
            await asyncio.sleep(0.01)
        done = await asked
        assert (done["status"], done["amount"]) == ("SUCCEEDED", amount or "1500.00")
        assert (await api.get(created.json["id"])).json["status"] == status


@dataclass
class Shop:
    """A merchant's server that stores the handled events and its cursor."""

    after: str = ""
    refunds_since: str = "2026-01-01T00:00:00Z"
    events: dict[str, str] = field(default_factory=dict)
    refunds: dict[str, str] = field(default_factory=dict)
    payments: dict[str, str] = field(default_factory=dict)
    waited_for: list[str] = field(default_factory=list)

    def handle_event(self, event_id: str, event: Any) -> None:
        assert event_id not in self.events
        self.events[event_id] = event["data"]["payment"]["id"]

    def handle_refund(self, refund_id: str, status: str) -> None:
        self.refunds[refund_id] = status

    def overdue(self) -> list[str]:
        return self.waited_for

    def handle_payment(self, payment: Any) -> None:
        self.payments[payment["id"]] = payment["status"]


async def test_the_loop_recovers_what_a_shop_missed(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    recover, shop = _calling(api, monkeypatch, "recover after an outage")["recover"], Shop()
    made = [(await paid(api)).json["id"] for _ in range(3)]
    await asyncio.to_thread(recover, shop)
    assert list(shop.events.values()) == made
    made += [(await paid(api)).json["id"] for _ in range(2)]
    refunded = (await ask(api, await paid(api), amount="90.00")).json
    shop.waited_for.append(refunded["payment_id"])
    await send(api.world)
    await asyncio.to_thread(recover, shop)
    assert list(shop.events.values()) == [*made, refunded["payment_id"]]
    assert shop.refunds == {refunded["id"]: "SUCCEEDED"}
    assert shop.payments == {refunded["payment_id"]: "PARTIALLY_REFUNDED"}


def _calling(api: Api, monkeypatch: pytest.MonkeyPatch, title: str) -> dict[str, Any]:
    monkeypatch.setenv("API_URL", f"{api.base}/v1")
    monkeypatch.setenv("API_KEY", api.world.api_key)
    guides = "\n".join(path.read_text() for path in sorted(ROOT.glob("docs/integrate/*.md")))
    [code] = examples(guides, "python", title)
    return _run(code)


async def _output(*command: str, cwd: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    said, complained = await process.communicate()
    assert process.returncode == 0, complained.decode()
    return said.decode()


def _example_gateway() -> Any:
    codes = blocks(page("docs/contribute/add-a-gateway.md"), "python")
    [code] = [code for code in codes if "class ExamplePay" in code]
    return _run(code)["ExamplePay"]


# What it does, the conformance kit proves: tests/conformance/example_harness.py.
def test_the_example_gateway_has_the_shape_of_the_port() -> None:
    example = _example_gateway()
    assert isinstance(example.provider, str)
    methods = [var for var in vars(Gateway) if not var.startswith("_")]
    assert {"create_session", "close_session", "inquire"} < set(methods)
    for method in methods:
        ours = inspect.signature(getattr(example, method), eval_str=False)
        assert list(ours.parameters) == list(inspect.signature(getattr(Gateway, method)).parameters)
