"""Test a sandbox from start to stop, with a complete payment."""

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
from tests.e2e.sandbox import Sandbox, is_alive, running_sandbox
from tests.support.collector import Collector, Span
from tests.support.ports import free_port_base
from tests.support.prometheus import running_prometheus
from tests.support.timeouts import wait_until
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
FAIL_WITHIN_S = 40.0  # if the start waited for the port, it would take a minute


async def test_a_buyer_pays_without_scripts_and_the_shop_receives_the_webhook(
    sandbox: Sandbox, http: aiohttp.ClientSession
) -> None:
    shop_url = sandbox.dev_json["shop_url"]
    owner = sandbox.dev_json["merchants"][0]
    browser = Browser(http)
    await browser.open(f"{shop_url}/")
    await browser.submit(browser.forms[0], quantity="2")
    assert browser.url.startswith(sandbox.dev_json["checkout_base"])
    await browser.submit(browser.form_to("select"))  # the card is preselected
    assert browser.url.startswith(sandbox.dev_json["simulator_url"])
    await browser.submit(browser.form("Pay"), card=APPROVED)
    assert browser.url.startswith(sandbox.dev_json["checkout_base"])

    async def webhooks() -> list:
        async with http.get(f"{shop_url}/webhooks.json") as answer:
            return await answer.json()

    [delivery] = await wait_until(webhooks, "the shop's webhook")
    event = Webhook(owner["callback_secret"]).verify(delivery["body"], delivery["headers"])
    assert event["type"] == "payment.completed"
    event_payment = event["data"]["payment"]
    headers = {"Authorization": f"Bearer {owner['api_key']}"}
    async with http.get(
        f"{sandbox.dev_json['api_url']}/payments/{event_payment['id']}", headers=headers
    ) as answer:
        payment = await answer.json()
    assert (payment["status"], payment["receipt_id"]) == ("PAID", event_payment["receipt_id"])
    await browser.open(f"{shop_url}/orders/{payment['metadata']['order_id']}")
    assert '<span class="state paid">paid</span>' in browser.text
    assert event_payment["receipt_id"] in browser.text
    await browser.open(payment["checkout_url"])
    assert "<span>Paid</span></h2>" in browser.text


async def test_a_new_merchant_is_paid_and_receives_the_webhook(
    sandbox: Sandbox, merchant: Merchant
) -> None:
    payment = await merchant.create(metadata={"order_id": "A-7", "n": 1})
    await merchant.pay(await merchant.select(payment))
    delivery = await merchant.wait_for_webhook(payment, "payment.completed")
    paid_payment = await merchant.wait_for_status(payment, "PAID")
    assert delivery.event["data"]["payment"]["metadata"] == {"order_id": "A-7", "n": 1}
    assert delivery.event["data"]["payment"]["paid_at"] == paid_payment["paid_at"]
    assert paid_payment["provider"] == "simulator"
    assert payment["id"] in sandbox.command("payment", "show", payment["id"])


@pytest.mark.full
async def test_prometheus_has_data_for_every_panel_with_recorded_metrics(
    sandbox: Sandbox, merchant: Merchant, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    api, worker = sandbox.dev_json["metrics_urls"]
    urls = {"payintent-api": api, "payintent-worker": worker}
    payment = await merchant.create()
    await merchant.pay(await merchant.select(payment))
    await merchant.wait_for_webhook(payment, "payment.completed")
    await merchant.api("GET", "/events")

    async def read_metrics() -> str:
        texts = []
        for url in urls.values():
            async with http.get(url) as answer:
                texts.append(await answer.text())
        return "".join(texts)

    async with running_prometheus(http, tmp_path, urls) as prometheus:
        paid_query = 'payintent_payments_total{end="PAID",provider="simulator"}'
        await wait_until(lambda: prometheus.query(paid_query), "the payment is counted")
        recorded_names = set(re.findall(r"^(\w+)", await read_metrics(), re.MULTILINE)) | {"up"}
        query_count = 0
        for name in DASHBOARDS:
            for query in queries(name):
                if set(re.findall(r"\b(?:payintent|process)_\w+|\bup\b", query)) <= recorded_names:
                    series = partial(prometheus.query, query.removesuffix(" > 0"))
                    assert await wait_until(series, query)
                    query_count += 1
                else:
                    await prometheus.query(query)  # the query is valid, even if there is no data
        assert query_count > 40
        rules = (await prometheus.ask("rules", type="alert"))["groups"]
        assert len([rule for group in rules for rule in group["rules"]]) > 30
        assert {rule["health"] for group in rules for rule in group["rules"]} <= {"ok", "unknown"}


async def test_a_payment_is_a_single_trace_from_creation_to_webhook_delivery(
    sandbox: Sandbox, merchant: Merchant
) -> None:
    payment = await merchant.create(payer_email="somebody@example.com")
    trace_id = parse_id(PAYMENT, payment["id"]).hex
    page = await merchant.select(payment)
    await merchant.pay(page)
    await merchant.wait_for_webhook(payment, "payment.completed")

    def find_complete_trace() -> dict[tuple[str, str], Span] | None:
        spans = {(span.service, span.name): span for span in COLLECTOR.of(trace_id)}
        return spans if spans.keys() >= _SPANS else None

    spans = await wait_until(find_complete_trace, "a complete trace")
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
    for secret in (*secrets, page.rpartition("/")[2]):
        assert len(secret) > 8
        assert secret.encode() not in COLLECTOR.raw


def test_dev_json_is_private_and_contains_everything_that_a_tester_needs(sandbox: Sandbox) -> None:
    path = sandbox.var_dir / "dev.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    description = sandbox.dev_json
    base = sandbox.port_base
    assert description["api_url"] == f"http://127.0.0.1:{base}/v1"
    assert description["checkout_base"] == f"http://127.0.0.1:{base}/c"
    assert description["simulator_url"] == f"http://127.0.0.1:{base + 1}"
    assert description["shop_url"] == f"http://127.0.0.1:{base + 2}"
    assert description["database_url"].startswith("postgresql://")
    assert description["operator_url"].startswith("http://127.0.0.1:")
    assert description["operator_token"]
    assert set(description["edge"]) == {"country_header", "secret_header", "secret"}
    assert isinstance(description["chains"], dict)
    assert len(description["merchants"]) >= 2
    for merchant in description["merchants"]:
        assert set(merchant) >= {"id", "name", "api_key", "callback_secret", "callback_url"}
    assert description["merchants"][0]["callback_url"] == f"{description['shop_url']}/webhooks"
    assert description["merchants"][0]["test"]["api_key"].startswith("sk_test_")


def test_secrets_are_only_in_private_files_and_never_in_logs(sandbox: Sandbox) -> None:
    values = sandbox.secrets()
    secrets = [values["pepper"], values["keyring"], values["merchants"][0]["api_key"]]
    for path in sandbox.var_dir.iterdir():
        if path.is_file() and any(secret in path.read_text() for secret in secrets):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path.name
    for log in (sandbox.var_dir / "logs").iterdir():
        assert not any(secret in log.read_text() for secret in secrets), log.name


def test_a_port_in_use_causes_a_single_clear_message_and_exit_status_1(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    began = time.monotonic()
    result = sandbox.run_again(VAR_DIR=str(tmp_path / "other"))
    assert result.returncode == 1
    [line] = (result.stdout + result.stderr).splitlines()
    assert str(sandbox.port_base) in line
    assert "PORT_BASE" in line
    assert time.monotonic() - began < FAIL_WITHIN_S
    assert not (tmp_path / "other").exists()


def test_data_in_use_causes_a_single_clear_message_and_exit_status_1(sandbox: Sandbox) -> None:
    result = sandbox.run_again(PORT_BASE=str(free_port_base()))
    assert result.returncode == 1
    [line] = (result.stdout + result.stderr).splitlines()
    assert "in use" in line


@pytest.mark.full
async def test_a_sandbox_stops_cleanly_and_restarts_with_all_its_data(
    http: aiohttp.ClientSession,
) -> None:
    with running_sandbox(chains=False) as sandbox:
        before, secrets, processes = sandbox.dev_json, sandbox.secrets(), sandbox.processes()
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
        after = sandbox.dev_json
        assert after["merchants"] == before["merchants"]
        assert sandbox.secrets() == secrets
        async with http.get(f"{url}/{payment['id']}", headers=headers) as answer:
            assert answer.status == 200
            assert (await answer.json())["status"] == "PENDING"
        async with http.post(url, json=body, headers=headers) as answer:
            assert answer.headers["Idempotency-Replayed"] == "true"
            assert (await answer.json())["id"] == payment["id"]


async def test_a_merchant_cannot_read_a_payment_of_another_merchant(
    new_merchant: NewMerchant,
) -> None:
    owner, stranger = await new_merchant(), await new_merchant()
    payment = await owner.create()
    status, answer = await stranger.api("GET", f"/payments/{payment['id']}")
    assert (status, answer["code"]) == (403, "FORBIDDEN")
