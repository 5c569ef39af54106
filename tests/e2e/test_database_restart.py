"""The database stops under load: clients are asked to retry, and everything recovers."""

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
from tests.support.patience import wait_until

CALLERS = 16
BEFORE, AFTER = 200, 200  # creates that succeed before the end, and after it

CHAINS = False
pytestmark = [pytest.mark.e2e, pytest.mark.full]


class Load:
    """Clients that create payments, repeating each key until it is acknowledged."""

    def __init__(self, merchant: Merchant) -> None:
        self.merchant = merchant
        self.made: dict[str, str] = {}  # payment id by key
        self.answers: Counter[int] = Counter()
        self.broken = 0
        self.wrong: list[Any] = []
        self._over = False

    async def run(self) -> None:
        async with asyncio.TaskGroup() as callers:
            for _ in range(CALLERS):
                callers.create_task(self._call())

    def stop(self) -> None:
        self._over = True

    async def _call(self) -> None:
        while not self._over:
            key = str(uuid4())
            while key not in self.made:
                await self._create(key)

    async def _create(self, key: str) -> None:
        url = f"{self.merchant.sandbox.told['api_url']}/payments"
        body = {"currency": "USD", "amount": "5.00", "payer_uid": key, "expires_in": 3600}
        headers = self.merchant.headers | {"Idempotency-Key": key}
        try:
            async with self.merchant.http.post(url, json=body, headers=headers) as answer:
                told = await answer.json()
                self.answers[answer.status] += 1
                if answer.status == 201:
                    self.made[key] = told["id"]
                elif answer.status != 503 or "Retry-After" not in answer.headers:
                    self.wrong.append((answer.status, told))
                    await asyncio.sleep(0.05)
                else:
                    assert told["code"] == "SERVICE_UNAVAILABLE"
                    await asyncio.sleep(0.05)
        except (aiohttp.ClientError, TimeoutError):
            self.broken += 1


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGKILL])
async def test_a_database_that_dies_under_load_costs_time_and_no_payment(
    sandbox: Sandbox, merchant: Merchant, number: signal.Signals
) -> None:
    api = sandbox.child("api")
    waiting = await merchant.create()
    page = await merchant.select(waiting)
    load = Load(merchant)
    async with asyncio.timeout(60), asyncio.TaskGroup() as work:
        work.create_task(load.run())
        await wait_until(lambda: len(load.made) >= BEFORE, "payments before")
        before = sandbox.postmaster()
        os.kill(before, number)
        await wait_until(lambda: not is_alive(before), "the database is dead")
        await merchant.pay(page)  # the gateway calls back while nobody can write it down
        made = len(load.made)
        await wait_until(lambda: len(load.made) >= made + AFTER, "payments after")
        load.stop()
    print(f"answers {dict(load.answers)}, broken {load.broken}")
    assert load.wrong == [], sandbox.bugs()
    assert load.answers[503] + load.broken > 0, "nobody noticed"
    assert sandbox.child("api") == api, "the API lives through it"
    rows = await merchant.rows(
        "SELECT id, payer_uid FROM payment WHERE merchant_id = $1 AND payer_uid <> 'buyer-1'",
        merchant.id,
    )
    assert len(rows) == len(load.made)
    assert {row["payer_uid"]: ids.format_id(ids.PAYMENT, row["id"]) for row in rows} == load.made
    await merchant.told(waiting, "payment.completed")
    await merchant.ends(waiting, "PAID")


async def test_after_a_restart_of_the_database_a_payment_goes_all_the_way(
    sandbox: Sandbox, merchant: Merchant
) -> None:
    before = sandbox.postmaster()
    os.kill(before, signal.SIGQUIT)

    async def created() -> Any:
        body = {"currency": "USD", "amount": "5.00", "payer_uid": "after"}
        status, payment = await merchant.api("POST", "/payments", body, str(uuid4()))
        assert status in (201, 503), payment
        return payment if status == 201 else None

    await wait_until(lambda: not is_alive(before), "the database is dead")
    payment = await wait_until(created, "a payment")
    await merchant.pay(await merchant.select(payment))
    await merchant.told(payment, "payment.completed")
    assert "the database ended" in sandbox.output.read_text()
