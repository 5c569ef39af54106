"""A good shop with configurable faults, under `/{faults}/`."""

import asyncio
import base64
import hmac
import json
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

import aiohttp
from aiohttp import web

from tests.sdks.broken_money import MONEY_FAULTS, Money, Side

KEY = b"0123456789abcdef0123456789abcdef"
_KINDS = {"payment.completed", "payment.expired", "payment.failed"}
_BODY_BYTES_MAX = 65_536
_HOUR_S = 3600
_SECONDS = 30
_WORKERS = 4
_MOMENT_S = 15.0  # a fault that needs two things at once waits this long for the second
#: Each check of the grader, and the fault that fails it.
FAULTS = {
    "paid": "pays_nothing",
    "crowd": "drops_what_is_too_much",
    "duplicate": "remembers_signatures",
    "race": "looks_before_it_writes",
    "crash": "remembers_what_it_answered",
    "reordered": "takes_the_newest_alone",
    "late": "refuses_old_events",
    "ended": "ends_twice",
    "wrong_signature": "believes_all_signatures",
    "old_timestamp": "believes_old_times",
    "rotation": "reads_one_signature",
    "unknown_field": "refuses_new_fields",
    "unknown_kind": "refuses_new_kinds",
    "other_amount": "believes_amounts",
    "other_currency": "believes_currencies",
    "huge_body": "takes_all_it_gets",
    "double_click": "buys_twice",
    "changed_order": "keeps_the_old_payment",
    "expired_first": "ends_with_any_payment",
    "both_paid": "hands_out_for_each_payment",
}
#: Faults that go together, so that one shop has nearly all of them.
ALL_FAULTS = [
    fault
    for check, fault in (FAULTS | MONEY_FAULTS).items()
    if check not in {"paid", "duplicate", "race", "crash", "real", "double_click_again"}
] + ["knows_no_duplicates"]


@dataclass
class Order:
    """An order, its payments, and the amount that each pays."""

    number: str
    amount: str
    payments: dict[str, str]  # the amount that each of them is to bring
    status: str = "waiting"
    handed_out: int = 0
    paid_by: str = ""

    def view(self) -> dict[str, Any]:
        newest = list(self.payments)[-1]
        shown = {"order_id": self.number, "payment_id": newest, "amount": self.amount}
        return shown | {"currency": "THB", "status": self.status, "handed_out": self.handed_out}


@dataclass
class BrokenShop:
    """A shop with its faults, its orders and its received events."""

    address: str
    faults: set[str]
    money: Money | None  # without it payments are made up
    trying: str = ""  # the check that is run, where the shop is told
    orders: dict[str, Order] = field(default_factory=dict)
    carts: dict[str, Order] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    newest: float = 0.0
    here: int = 0  # webhooks that are being handled
    happened: set[str] = field(default_factory=set)  # faults of chance that came
    numbers: Any = field(default_factory=count)
    locks: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    waiting: Counter[str] = field(default_factory=Counter[str])

    async def hear(self, request: web.Request) -> web.Response:
        self.trying = request.match_info["check"]
        return web.Response(status=204)

    async def place(self, request: web.Request) -> web.Response:
        cart = (await request.json())["cart_id"]
        attempt = await self._begin_attempt(cart)
        async with self.locks[cart]:
            if cart not in self.carts or ("buys_twice" in self.faults and attempt is None):
                order = Order(str(next(self.numbers)), "20.00", {})
                await self._add_payment(order, order.amount)
                self.carts[cart] = self.orders[order.number] = order
            elif self.carts[cart].status == "paid" and "sells_paid_orders_again" in self.faults:
                await self._add_payment(self.carts[cart], self.carts[cart].amount)
            return web.json_response(self.carts[cart].view() | (attempt or {}), status=201)

    async def _begin_attempt(self, cart: str) -> dict[str, str] | None:
        """Start an attempt; return its payment, or None unless the last one has ended unpaid."""
        order = self.carts.get(cart)
        if order is None or self.money is None:
            return None
        attempt = len(order.payments)
        end = await self.money.unpaid_end(list(order.payments)[-1])
        if not end or f"reuses_{end}" in self.faults:
            return {} if end else None
        self.waiting[cart] += 1
        await self._comes("begins_two_attempts", lambda: self.waiting[cart] > 1)
        async with self.locks[cart]:
            if len(order.payments) == attempt or "begins_two_attempts" in self.faults:
                order.status = "waiting"
                await self._add_payment(order, order.amount)
            return {"payment_id": list(order.payments)[-1]}

    async def show(self, request: web.Request) -> web.Response:
        order = self.orders[request.match_info["order"]]
        shown = order.view()
        if self.money is None:
            return web.json_response(shown)
        if order.status == "waiting" and await self.money.is_over(shown["payment_id"]):
            order.status = "expired"
        refunded = {"refunded": await self.money.refunded(shown["payment_id"])}
        return web.json_response(order.view() | refunded)

    async def come_back(self, request: web.Request) -> web.Response:
        order, told = self.orders[request.match_info["order"]], request.query
        is_own = told["payment_id"] in order.payments
        believed = "believes_the_query" in self.faults and is_own and told["status"] == "PAID"
        if "reads_the_payment_of_the_query" in self.faults and self.money and not is_own:
            believed = (await self.money.read(told["payment_id"]))["status"] == "PAID"
        if believed and order.status == "waiting":
            order.status, order.paid_by = "paid", told["payment_id"]
            order.handed_out += 1
        return web.Response(text=order.status)

    async def poll(self, request: web.Request) -> web.Response:
        del request  # the poll has no parameters
        waiting = [order for order in self.orders.values() if order.status == "waiting"]
        for order in waiting if self.money and "never_polls" not in self.faults else []:
            assert self.money is not None
            payment = await self.money.read(list(order.payments)[-1])
            if payment["status"] == "PAID":
                self._pay(order, payment)
        return web.Response(status=204)

    async def pay_again(self, request: web.Request) -> web.Response:
        order = self.orders[request.match_info["order"]]
        await self._add_payment(order, order.amount)
        return web.json_response(order.view(), status=201)

    async def change(self, request: web.Request) -> web.Response:
        order = self.orders[request.match_info["order"]]
        if "breaks_where_orders_change" in self.faults:  # which no check is about
            return web.Response(status=500)
        before, order.amount = order.amount, "30.00"
        if "keeps_the_old_payment" not in self.faults:
            order.payments.clear()
        await self._add_payment(order, before)
        return web.json_response(order.view())

    async def refund(self, request: web.Request) -> web.Response:
        asked = await request.json()
        assert self.money is not None, "the test gave no side"
        payment_id = self.orders[request.match_info["order"]].paid_by
        status = await self.money.refund(payment_id, asked["return_id"], asked["amount"])
        return web.json_response({}, status=status)

    async def receive(self, request: web.Request) -> web.Response:
        self.here += 1
        try:
            return await self._receive(request)
        finally:
            self.here -= 1

    async def _receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        if len(body) > _BODY_BYTES_MAX:
            return web.Response(status=200 if "takes_all_it_gets" in self.faults else 413)
        if not _is_good(request.headers, body, self.faults):
            return web.Response(status=401)
        if await self._comes("drops_what_is_too_much", lambda: self.here > _WORKERS):
            assert request.transport is not None
            request.transport.close()
        event = json.loads(body)
        if not self._can_read(event):
            return web.Response(status=400)
        name = "webhook-signature" if "remembers_signatures" in self.faults else "webhook-id"
        return web.Response(status=await self._handle_once(request, request.headers[name], event))

    def _can_read(self, event: dict[str, Any]) -> bool:
        new_field = "a_new_field" in event["data"]["payment"]
        age_s = time.time() - _happened(event)
        return not (
            ("refuses_new_fields" in self.faults and new_field)
            or ("refuses_new_kinds" in self.faults and event["type"] not in _KINDS)
            or ("refuses_old_events" in self.faults and age_s > _HOUR_S)
        )

    async def _handle_once(self, request: web.Request, name: str, event: dict[str, Any]) -> int:
        """Handle new events. A concurrent sender of the same event waits."""
        if "looks_before_it_writes" in self.faults:
            return await self._handle_new(request, name, event)
        async with self.locks[name]:
            return await self._handle_new(request, name, event)

    async def _handle_new(self, request: web.Request, name: str, event: dict[str, Any]) -> int:
        if name in self.seen and "knows_no_duplicates" not in self.faults:
            return 204
        self.waiting[name] += 1
        await self._comes("looks_before_it_writes", lambda: self.waiting[name] > 1)
        await self._handle(event)
        if not await self._comes("remembers_what_it_answered", lambda: _hung_up(request)):
            self.seen.add(name)
        return 204

    async def _handle(self, event: dict[str, Any]) -> None:
        late_s = self.newest - _happened(event)
        self.newest = max(self.newest, _happened(event))
        if "takes_the_newest_alone" in self.faults and _SECONDS < late_s < _HOUR_S:
            return
        payment = event["data"]["payment"]
        order = next(
            (each for each in self.orders.values() if payment["id"] in each.payments), None
        )
        if order is not None and event["type"] == "payment.completed":
            self._pay(order, payment)
        elif order is not None and event["type"] == "payment.expired":
            self._expire(order, payment["id"])
        elif order is not None and self.money and await self.money.finds_money(payment["id"]):
            self._pay(order, payment)

    def _pay(self, order: Order, payment: dict[str, Any]) -> None:
        amount = order.payments[payment["id"]]
        right = payment["amount"] == amount or "believes_amounts" in self.faults
        right &= payment["currency"] == "THB" or "believes_currencies" in self.faults
        again = {
            "looks_before_it_writes": payment["id"] == order.paid_by,
            "remembers_signatures": payment["id"] == order.paid_by,
            "remembers_what_it_answered": payment["id"] == order.paid_by,
            "knows_no_duplicates": payment["id"] == order.paid_by,
            "hands_out_for_each_payment": payment["id"] != order.paid_by,
        }
        waits = order.status == "waiting"
        paid_again = order.status == "paid" and any(
            fault in self.faults and more for fault, more in again.items()
        )
        if right and (waits or paid_again) and "pays_nothing" not in self.faults:
            order.status, order.paid_by = "paid", payment["id"]
            order.handed_out += 1

    def _expire(self, order: Order, payment_id: str) -> None:
        last = list(order.payments)[-1] == payment_id
        if order.status == "paid":
            order.status = "expired" if "ends_twice" in self.faults else "paid"
        elif last or "ends_with_any_payment" in self.faults:
            order.status = "expired"

    async def _add_payment(self, order: Order, before: str) -> None:
        payment_id = f"pay_{order.number}_{len(order.payments)}_{order.amount}"
        if self.money is not None:
            back = f"{self.address}/return/{order.number}"
            payment_id = await self.money.create(order.number, order.amount, before, back)
        order.payments[payment_id] = order.amount

    async def _comes(self, fault: str, what: Callable[[], bool]) -> bool:
        """Wait for an event that a fault needs, so that its result is not random."""
        if fault not in self.faults or fault in self.happened or not self._can_come(fault):
            return False
        end = time.monotonic() + _MOMENT_S
        while not (came := what()) and fault not in self.happened and time.monotonic() < end:
            await asyncio.sleep(0.01)
        if came:
            self.happened.add(fault)
        return came

    def _can_come(self, fault: str) -> bool:
        if fault == FAULTS["crowd"]:
            waiting = sum(order.status == "waiting" for order in self.orders.values())
            return waiting > _WORKERS
        return fault == (FAULTS | MONEY_FAULTS).get(self.trying)


def _hung_up(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


def _happened(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["timestamp"]).astimezone(UTC).timestamp()


def _is_good(headers: Any, body: bytes, faults: set[str]) -> bool:
    sent = headers["webhook-timestamp"]
    if "believes_old_times" not in faults and abs(time.time() - int(sent)) > 300:
        return False
    signed = f"{headers['webhook-id']}.{sent}.".encode() + body
    expected = "v1," + base64.b64encode(hmac.digest(KEY, signed, "sha256")).decode()
    given = headers["webhook-signature"].split()
    good = expected in (given[:1] if "reads_one_signature" in faults else given)
    return good or "believes_all_signatures" in faults


@asynccontextmanager
async def broken_shop(sides: Mapping[str, Side] | None = None) -> AsyncIterator[str]:
    """Serve shops; yield their base URL, to which the faults are appended.

    `sides` contains the test merchants of shops with real payments, by the shops' faults.
    """
    shops = dict[str, BrokenShop]()
    http = aiohttp.ClientSession()

    def open_shop(address: str, name: str) -> BrokenShop:
        faults, side = set(name.split("+")), (sides or {}).get(name)
        money = Money(side, http, faults) if side else None
        return BrokenShop(f"{address}/{name}", faults, money)

    async def answer(request: web.Request) -> web.StreamResponse:
        name = request.match_info["faults"]
        if name not in shops:
            shops[name] = open_shop(f"http://{request.host}", name)
        return await getattr(shops[name], request.match_info.route.name or "")(request)

    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/{faults}/trying/{check}", answer, name="hear")
    app.router.add_post("/{faults}/orders", answer, name="place")
    app.router.add_post("/{faults}/orders/poll", answer, name="poll")
    app.router.add_get("/{faults}/orders/{order}", answer, name="show")
    app.router.add_get("/{faults}/return/{order}", answer, name="come_back")
    app.router.add_post("/{faults}/orders/{order}/pay_again", answer, name="pay_again")
    app.router.add_post("/{faults}/orders/{order}/change", answer, name="change")
    app.router.add_post("/{faults}/orders/{order}/refund", answer, name="refund")
    app.router.add_post("/{faults}/webhooks", answer, name="receive")
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
        await http.close()
        await asyncio.sleep(0)
