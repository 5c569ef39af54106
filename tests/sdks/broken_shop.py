"""A shop that is good but for the faults it is told to have, under `/{faults}/`."""

import asyncio
import base64
import hmac
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from aiohttp import web

KEY = b"0123456789abcdef0123456789abcdef"
_ENDS = {"payment.completed": "paid", "payment.expired": "expired"}
#: Each fault, and the checks of the grader that fail for it.
FAULTS = {
    "none": set[str](),
    "knows_no_duplicates": {"duplicate", "crash"},
    "refuses_duplicates": {"duplicate", "crash"},
    "ends_twice": {"late"},
    "verifies_nothing": {"wrong_signature", "old_timestamp", "huge_body"},
    "believes_old_times": {"old_timestamp"},
    "reads_one_signature": {"rotation"},
    "refuses_new_fields": {"unknown_field"},
    "refuses_new_kinds": {"unknown_kind"},
    "believes_amounts": {"other_amount"},
    "pays_for_new_kinds": {"unknown_kind"},
    "answers_200_to_all": {"huge_body"},
}


@dataclass
class BrokenShop:
    """Its orders, and what it has seen."""

    orders: dict[str, dict[str, Any]] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    numbers: Any = field(default_factory=count)

    async def place(self, request: web.Request) -> web.Response:
        number = str(next(self.numbers))
        order = {"order_id": number, "payment_id": f"pay_{number}"}
        order |= {"amount": "20.00", "currency": "THB", "status": "waiting", "handed_out": 0}
        self.orders[order["payment_id"]] = order
        return web.json_response(order, status=201)

    async def show(self, request: web.Request) -> web.Response:
        return web.json_response(self.orders[f"pay_{request.match_info['order']}"])

    async def receive(self, request: web.Request) -> web.Response:
        faults = set(request.match_info["faults"].split("+"))
        body = await request.read()
        if len(body) > 65_536:
            lax = faults & {"answers_200_to_all", "verifies_nothing"}
            return web.Response(status=200 if lax else 413)
        if "verifies_nothing" not in faults and not _good(request.headers, body, faults):
            return web.Response(status=401)
        return web.Response(status=self._handle(request.headers["webhook-id"], body, faults))

    def _handle(self, webhook_id: str, body: bytes, faults: set[str]) -> int:
        event = json.loads(body)
        payment = event["data"]["payment"]
        if "refuses_new_fields" in faults and "a_new_field" in payment:
            return 400
        status = _ENDS.get(event["type"])
        if status is None and "refuses_new_kinds" in faults:
            return 400
        if webhook_id in self.seen and "knows_no_duplicates" not in faults:
            return 409 if "refuses_duplicates" in faults else 204
        self.seen.add(webhook_id)
        order = self.orders[payment["id"]]
        if status is None and "pays_for_new_kinds" in faults:
            status = "paid"
        again = {"ends_twice", "knows_no_duplicates"} & faults
        if status == "paid" and order["status"] in {"waiting", "paid"}:
            right = payment["amount"] == order["amount"] or "believes_amounts" in faults
            if right and (again or order["status"] == "waiting"):
                order |= {"status": "paid", "handed_out": order["handed_out"] + 1}
        elif status == "expired" and (order["status"] == "waiting" or "ends_twice" in faults):
            order["status"] = "expired"
        return 204


def _good(headers: Any, body: bytes, faults: set[str]) -> bool:
    sent = headers["webhook-timestamp"]
    if "believes_old_times" not in faults and abs(time.time() - int(sent)) > 300:
        return False
    signed = f"{headers['webhook-id']}.{sent}.".encode() + body
    expected = "v1," + base64.b64encode(hmac.digest(KEY, signed, "sha256")).decode()
    given = headers["webhook-signature"].split()
    return expected in (given[:1] if "reads_one_signature" in faults else given)


@asynccontextmanager
async def broken_shop() -> AsyncIterator[str]:
    """Serve it; gives its address, to which the faults are added."""
    shop = BrokenShop()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/{faults}/orders", shop.place)
    app.router.add_get("/{faults}/orders/{order}", shop.show)
    app.router.add_post("/{faults}/webhooks", shop.receive)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
        await asyncio.sleep(0)
