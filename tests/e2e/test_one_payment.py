"""A sandbox from start to stop, with a complete payment."""

import re
import stat
import time
from functools import partial
from pathlib import Path
from uuid import uuid4

import aiohttp
import pytest
from standardwebhooks import Webhook

from payintent.core.ids import PAYMENT, parse_id
from tests.docs.test_dashboards import queries
from tests.e2e.conftest import NewMerchant
from tests.e2e.merchant import APPROVED, Browser, Merchant
from tests.e2e.sandbox import Sandbox, free_port_base, is_alive, running_sandbox
from tests.support.collector import Collector, Span
from tests.support.patience import wait_until
from tests.support.prometheus import running_prometheus
from tools.dashboards.__main__ import DASHBOARDS

pytestmark = pytest.mark.e2e
COLLECTOR = Collector()
WARM = True
_SPANS = {
    ("payintent-api", "POST /v1/payments"),
    ("payintent-api", "POST /v1/checkout/{checkout_id}/quotes"),
    ("payintent-api", "gateway create_session"),
    ("payintent-api", "payment PROCESSING"),
    ("payintent-api", "POST /v1/callbacks/{provider}/{account_id}"),
    ("payintent-api", "payment PAID"),
    ("payintent-worker", "deliver webhook"),
}
AT_ONCE_S = 40.0  # a start that waited for the port would take the sandbox's whole minute


async def test_a_buyer_pays_by_forms_alone_and_the_shop_hears_of_it(
    sandbox: Sandbox, http: aiohttp.ClientSession
) -> None:
    shop_url = sandbox.told["shop_url"]
    owner = sandbox.told["merchants"][0]
    browser = Browser(http)
    await browser.open(f"{shop_url}/")
    await browser.submit(browser.forms[0], quantity="2")
    assert browser.url.startswith(sandbox.told["checkout_base"])
    await browser.submit(browser.form_to("select"))  # with the card, which stands first
    assert browser.url.startswith(sandbox.told["simulator_url"])
    await browser.submit(browser.form("Pay"), card=APPROVED)
    assert browser.url.startswith(sandbox.told["checkout_base"])

    async def webhooks() -> list:
        async with http.get(f"{shop_url}/webhooks.json") as answer:
            return await answer.json()

    [delivery] = await wait_until(webhooks, "the shop's webhook")
    event = Webhook(owner["callback_secret"]).verify(delivery["body"], delivery["headers"])
    assert event["type"] == "payment.completed"
    told = event["data"]["payment"]
    headers = {"Authorization": f"Bearer {owner['api_key']}"}
    async with http.get(
        f"{sandbox.told['api_url']}/payments/{told['id']}", headers=headers
    ) as answer:
        seen = await answer.json()
    assert (seen["status"], seen["receipt_id"]) == ("PAID", told["receipt_id"])
    await browser.open(f"{shop_url}/orders/{seen['metadata']['order_id']}")
    assert '<span class="state paid">paid</span>' in browser.text
    assert told["receipt_id"] in browser.text
    await browser.open(seen["checkout_url"])
    assert "<span>Paid</span></h2>" in browser.text


async def test_a_merchant_of_the_command_line_is_paid_and_told(
    sandbox: Sandbox, merchant: Merchant
) -> None:
    payment = await merchant.create(metadata={"order_id": "A-7", "n": 1})
    await merchant.pay(await merchant.select(payment))
    delivery = await merchant.told(payment, "payment.completed")
    seen = await merchant.ends(payment, "PAID")
    assert delivery.event["data"]["payment"]["metadata"] == {"order_id": "A-7", "n": 1}
    assert delivery.event["data"]["payment"]["paid_at"] == seen["paid_at"]
    assert seen["provider"] == "simulator"
    assert payment["id"] in sandbox.command("payment", "show", payment["id"])


@pytest.mark.full
async def test_prometheus_has_data_for_every_panel_of_what_the_service_has_counted(
    sandbox: Sandbox, merchant: Merchant, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    api, worker = sandbox.told["metrics_urls"]
    urls = {"payintent-api": api, "payintent-worker": worker}
    payment = await merchant.create()
    await merchant.pay(await merchant.select(payment))
    await merchant.told(payment, "payment.completed")
    await merchant.api("GET", "/events")

    async def counted() -> str:
        texts = []
        for url in urls.values():
            async with http.get(url) as answer:
                texts.append(await answer.text())
        return "".join(texts)

    async with running_prometheus(http, tmp_path, urls) as prometheus:
        paid = 'payintent_payments_total{end="PAID",provider="simulator"}'
        await wait_until(lambda: prometheus.query(paid), "a payment that a worker has counted")
        present = set(re.findall(r"^(\w+)", await counted(), re.MULTILINE)) | {"up"}
        answered = 0
        for name in DASHBOARDS:
            for query in queries(name):
                if set(re.findall(r"\b(?:payintent|process)_\w+|\bup\b", query)) <= present:
                    series = partial(prometheus.query, query.removesuffix(" > 0"))
                    assert await wait_until(series, query)
                    answered += 1
                else:
                    await prometheus.query(query)  # of what did not happen, but an answer
        assert answered > 40
        rules = (await prometheus.ask("rules", type="alert"))["groups"]
        assert len([rule for group in rules for rule in group["rules"]]) > 30
        assert {rule["health"] for group in rules for rule in group["rules"]} <= {"ok", "unknown"}


async def test_a_payment_is_one_trace_from_its_create_to_its_delivery(
    sandbox: Sandbox, merchant: Merchant
) -> None:
    payment = await merchant.create(payer_email="somebody@example.com")
    trace_id = parse_id(PAYMENT, payment["id"]).hex
    page = await merchant.select(payment)
    await merchant.pay(page)
    await merchant.told(payment, "payment.completed")

    def complete() -> dict[tuple[str, str], Span] | None:
        spans = {(span.service, span.name): span for span in COLLECTOR.of(trace_id)}
        return spans if spans.keys() >= _SPANS else None

    spans = await wait_until(complete, "a whole trace")
    root = spans["payintent-api", "POST /v1/payments"]
    selection = spans["payintent-api", "POST /v1/checkout/{checkout_id}/quotes"]
    by_id = {span.span_id: span for span in COLLECTOR.of(trace_id)}
    assert root.parent_id == ""
    assert root.attributes["http.response.status_code"] == 201
    assert spans["payintent-api", "gateway create_session"].parent_id == selection.span_id
    assert {by_id[span.parent_id].name for span in by_id.values() if span is not root} <= {
        root.name,
        selection.name,
    }
    assert spans["payintent-worker", "deliver webhook"].attributes["payintent.attempt"] == 1
    assert not any(span.failed for span in by_id.values())
    secrets = [sandbox.secrets()["pepper"], merchant.api_key, merchant.secret]
    secrets += [payment["checkout_url"].rpartition("/")[2], "somebody@example.com"]
    for kept in (*secrets, page.rpartition("/")[2]):
        assert len(kept) > 8
        assert kept.encode() not in COLLECTOR.raw


def test_dev_json_belongs_to_its_owner_and_names_all_that_a_tester_needs(sandbox: Sandbox) -> None:
    path = sandbox.var_dir / "dev.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    told = sandbox.told
    base = sandbox.port_base
    assert told["api_url"] == f"http://127.0.0.1:{base}/v1"
    assert told["checkout_base"] == f"http://127.0.0.1:{base}/c"
    assert told["simulator_url"] == f"http://127.0.0.1:{base + 1}"
    assert told["shop_url"] == f"http://127.0.0.1:{base + 2}"
    assert told["database_url"].startswith("postgresql://")
    assert told["operator_url"].startswith("http://127.0.0.1:")
    assert told["operator_token"]
    assert set(told["edge"]) == {"country_header", "secret_header", "secret"}
    assert isinstance(told["chains"], dict)
    assert len(told["merchants"]) >= 2
    for merchant in told["merchants"]:
        assert set(merchant) >= {"id", "name", "api_key", "callback_secret", "callback_url"}
    assert told["merchants"][0]["callback_url"] == f"{told['shop_url']}/webhooks"
    assert told["merchants"][0]["test"]["api_key"].startswith("sk_test_")


def test_no_file_with_a_secret_can_be_read_by_others(sandbox: Sandbox) -> None:
    kept = sandbox.secrets()
    secrets = [kept["pepper"], kept["keyring"], kept["merchants"][0]["api_key"]]
    for path in sandbox.var_dir.iterdir():
        if path.is_file() and any(secret in path.read_text() for secret in secrets):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path.name
    for log in (sandbox.var_dir / "logs").iterdir():
        assert not any(secret in log.read_text() for secret in secrets), log.name


def test_a_taken_port_is_one_clear_line_and_status_1(sandbox: Sandbox, tmp_path: Path) -> None:
    began = time.monotonic()
    done = sandbox.run_again(VAR_DIR=str(tmp_path / "other"))
    assert done.returncode == 1
    [line] = (done.stdout + done.stderr).splitlines()
    assert str(sandbox.port_base) in line
    assert "PORT_BASE" in line
    assert time.monotonic() - began < AT_ONCE_S
    assert not (tmp_path / "other").exists()


def test_data_in_use_is_one_clear_line_and_status_1(sandbox: Sandbox) -> None:
    done = sandbox.run_again(PORT_BASE=str(free_port_base()))
    assert done.returncode == 1
    [line] = (done.stdout + done.stderr).splitlines()
    assert "in use" in line


@pytest.mark.full
async def test_it_ends_clean_and_a_second_start_finds_everything(
    http: aiohttp.ClientSession,
) -> None:
    with running_sandbox(chains=False) as sandbox:
        before, secrets, processes = sandbox.told, sandbox.secrets(), sandbox.processes()
        assert len(processes) > 5
        owner = before["merchants"][0]
        headers = {"Authorization": f"Bearer {owner['api_key']}", "Idempotency-Key": str(uuid4())}
        body = {"currency": "USD", "amount": "1.00", "payer_uid": "b"}
        url = f"{before['api_url']}/payments"
        async with http.post(url, json=body, headers=headers) as answer:
            assert answer.status == 201, await answer.text()
            payment = await answer.json()
        assert sandbox.stop() == 0
        assert [pid for pid in processes if is_alive(pid)] == []
        sandbox.start()
        after = sandbox.told
        assert after["merchants"] == before["merchants"]
        assert sandbox.secrets() == secrets
        async with http.get(f"{url}/{payment['id']}", headers=headers) as answer:
            assert answer.status == 200
            assert (await answer.json())["status"] == "PENDING"
        async with http.post(url, json=body, headers=headers) as answer:
            assert answer.headers["Idempotency-Replayed"] == "true"
            assert (await answer.json())["id"] == payment["id"]


async def test_both_merchants_live_apart(new_merchant: NewMerchant) -> None:
    one, other = await new_merchant(), await new_merchant()
    payment = await one.create()
    status, answer = await other.api("GET", f"/payments/{payment['id']}")
    assert (status, answer["code"]) == (403, "FORBIDDEN")
