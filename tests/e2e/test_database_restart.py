"""Test a database crash under load: clients are asked to retry, and the service recovers."""

import asyncio
import os
import signal
from collections import Counter
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from payintent.core import ids
from tests.e2e.merchant import Merchant
from tests.e2e.sandbox import Sandbox, is_alive
from tests.support.timeouts import wait_until

CALLERS = 16
BEFORE, AFTER = 200, 200  # successful creates before and after the crash

CHAINS = False
pytestmark = [pytest.mark.e2e, pytest.mark.full]


class Load:
    """Clients that create payments, and repeat a request if it is not acknowledged."""

    def __init__(self, merchant: Merchant) -> None:
        self.merchant = merchant
        self.payment_ids: dict[str, str] = {}  # by idempotency key
        self.answers: Counter[int] = Counter()
        self.connection_errors = 0
        self.unexpected: list[Any] = []
        self._stopped = False

    async def run(self) -> None:
        async with asyncio.TaskGroup() as callers:
            for _ in range(CALLERS):
                callers.create_task(self._call())

    def stop(self) -> None:
        self._stopped = True

    async def _call(self) -> None:
        while not self._stopped:
            key = str(uuid4())
            while key not in self.payment_ids:
                await self._create(key)

    async def _create(self, key: str) -> None:
        url = f"{self.merchant.sandbox.dev_json['api_url']}/payments"
        body = {"currency": "USD", "amount": "5.00", "payer_uid": key, "expires_in": 3600}
        headers = self.merchant.headers | {"Idempotency-Key": key}
        try:
            async with self.merchant.http.post(url, json=body, headers=headers) as answer:
                response = await answer.json()
                self.answers[answer.status] += 1
                if answer.status == 201:
                    self.payment_ids[key] = response["id"]
                elif answer.status != 503 or "Retry-After" not in answer.headers:
                    self.unexpected.append((answer.status, response))
                    await asyncio.sleep(0.05)
                else:
                    assert response["code"] == "SERVICE_UNAVAILABLE"
                    await asyncio.sleep(0.05)
        except (aiohttp.ClientError, TimeoutError):
            self.connection_errors += 1


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGKILL])
async def test_a_database_crash_under_load_loses_no_payment(
    sandbox: Sandbox, merchant: Merchant, number: signal.Signals
) -> None:
    api = sandbox.child("api")
    processing = await merchant.create()
    page = await merchant.select(processing)
    load = Load(merchant)
    async with asyncio.timeout(60), asyncio.TaskGroup() as work:
        work.create_task(load.run())
        await wait_until(lambda: len(load.payment_ids) >= BEFORE, "payments before")
        before = sandbox.postmaster()
        os.kill(before, number)
        await wait_until(lambda: not is_alive(before), "the database has stopped")
        await merchant.pay(page)  # the gateway sends its callback while the database is down
        count = len(load.payment_ids)
        await wait_until(lambda: len(load.payment_ids) >= count + AFTER, "payments after")
        load.stop()
    print(f"answers {dict(load.answers)}, broken {load.connection_errors}")
    assert load.unexpected == [], sandbox.bugs()
    assert load.answers[503] + load.connection_errors > 0, "no client noticed the crash"
    assert sandbox.child("api") == api, "the API keeps running"
    rows = await merchant.rows(
        "SELECT id, payer_uid FROM payment WHERE merchant_id = $1 AND payer_uid <> 'buyer-1'",
        merchant.id,
    )
    assert len(rows) == len(load.payment_ids)
    assert {
        row["payer_uid"]: ids.format_id(ids.PAYMENT, row["id"]) for row in rows
    } == load.payment_ids
    await merchant.wait_for_webhook(processing, "payment.completed")
    await merchant.wait_for_status(processing, "PAID")


async def test_a_payment_completes_after_a_database_restart(
    sandbox: Sandbox, merchant: Merchant
) -> None:
    before = sandbox.postmaster()
    os.kill(before, signal.SIGQUIT)

    async def try_create() -> Any:
        body = {"currency": "USD", "amount": "5.00", "payer_uid": "after"}
        status, payment = await merchant.api("POST", "/payments", body, str(uuid4()))
        assert status in (201, 503), payment
        return payment if status == 201 else None

    await wait_until(lambda: not is_alive(before), "the database has stopped")
    payment = await wait_until(try_create, "a payment")
    await merchant.pay(await merchant.select(payment))
    await merchant.wait_for_webhook(payment, "payment.completed")
    assert "the database exited" in sandbox.output.read_text()
