"""Make a call to each of several servers with scripted responses; print each result.

Standard input contains, as JSON, the URL, the timeout and the kind of call for each server. If
there is an argument, it is the URL of a server from which the asynchronous client reads a payment.
"""

import asyncio
import json
import sys
from typing import Any

from payintent_sdk import AsyncClient, Client, PayintentError, RetryPolicy

POLICY = RetryPolicy(tries=3, first_wait_s=0.001, total_s=30)


def run_call(url: str, timeout_s: float, kind: str) -> Any:
    with Client("sk_test_x", url, retries=POLICY, timeout_s=timeout_s) as client:
        calls = {
            "create": lambda: client.payments.create(amount="1", currency="THB", payer_uid="b").id,
            "float": lambda: client.payments.create(amount=1.5, currency="THB", payer_uid="b").id,
            "get": lambda: client.payments.get("pay_1").id,
            "replay": lambda: client.events.replay("e").id,
            "iterate": lambda: "".join(payment.id for payment in client.payments.iterate()),
        }
        try:
            return calls[kind]()
        except (PayintentError, TypeError) as error:
            return [type(error).__name__, getattr(error, "retry_after_s", None)]


async def get_from(url: str) -> str:
    async with AsyncClient("sk_test_x", url, retries=POLICY, timeout_s=0.5) as client:
        return (await client.payments.get("pay_1")).id


if sys.argv[1:]:
    print(asyncio.run(get_from(sys.argv[1])))
    sys.exit()
print(json.dumps([run_call(*arguments) for arguments in json.load(sys.stdin)]))
