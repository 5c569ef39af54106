"""A shop that is correct except for the faults in its URL, `/{faults}/`."""

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
_FAULT_WAIT_S = 15.0  # the time that a fault waits for a second, concurrent event
#: For each of the grader's checks, the fault that it detects.
FAULTS = {
    "paid": "ignores_payments",
    "crowd": "drops_excess_webhooks",
    "duplicate": "deduplicates_by_signature",
    "race": "checks_before_writing",
    "crash": "deduplicates_by_response",
    "reordered": "accepts_only_newest",
    "late": "refuses_old_events",
    "ended": "expires_paid_orders",
    "wrong_signature": "accepts_all_signatures",
    "old_timestamp": "accepts_old_timestamps",
    "rotation": "reads_one_signature",
    "unknown_field": "refuses_new_fields",
    "unknown_kind": "refuses_new_kinds",
    "other_amount": "accepts_wrong_amounts",
    "other_currency": "accepts_wrong_currencies",
    "huge_body": "accepts_huge_bodies",
    "double_click": "creates_two_orders",
    "changed_order": "keeps_old_payment",
    "expired_first": "expires_with_any_payment",
    "both_paid": "delivers_for_each_payment",
}
#: Faults that a single shop can have at the same time.
ALL_FAULTS = [
    fault
    for check, fault in (FAULTS | MONEY_FAULTS).items()
    if check not in {"paid", "duplicate", "race", "crash", "real", "double_click_again"}
] + ["handles_duplicates"]


@dataclass
class Order:
    """An order with its payments."""

    number: str
    amount: str
    payments: dict[str, str]  # the expected amount of each payment
    status: str = "waiting"
    handed_out: int = 0
    paid_by: str = ""

    def view(self) -> dict[str, Any]:
        newest = list(self.payments)[-1]
        order_fields = {"order_id": self.number, "payment_id": newest, "amount": self.amount}
        return order_fields | {
            "currency": "THB",
            "status": self.status,
            "handed_out": self.handed_out,
        }


@dataclass
class BrokenShop:
    """A shop with its faults, orders and received events."""

    address: str
    faults: set[str]
    money: Money | None  # if it is None, the payments are not real
    current_check: str = ""  # the current check, if it was announced
    orders: dict[str, Order] = field(default_factory=dict)
    carts: dict[str, Order] = field(default_factory=dict)
    handled_ids: set[str] = field(default_factory=set)
    newest: float = 0.0
    active_webhooks: int = 0  # webhooks in progress
    triggered_faults: set[str] = field(default_factory=set)  # concurrent faults that have occurred
    numbers: Any = field(default_factory=count)
    locks: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    waiting: Counter[str] = field(default_factory=Counter[str])

    async def announce(self, request: web.Request) -> web.Response:
        self.current_check = request.match_info["check"]
        return web.Response(status=204)

    async def place(self, request: web.Request) -> web.Response:
        cart = (await request.json())["cart_id"]
        attempt = await self._begin_attempt(cart)
        async with self.locks[cart]:
            if cart not in self.carts or ("creates_two_orders" in self.faults and attempt is None):
                order = Order(str(next(self.numbers)), "20.00", {})
                await self._add_payment(order, order.amount)
                self.carts[cart] = self.orders[order.number] = order
            elif self.carts[cart].status == "paid" and "sells_paid_orders_again" in self.faults:
                await self._add_payment(self.carts[cart], self.carts[cart].amount)
            return web.json_response(self.carts[cart].view() | (attempt or {}), status=201)

    async def _begin_attempt(self, cart: str) -> dict[str, str] | None:
        """Start an attempt and return its payment; None unless the last attempt ended unpaid."""
        order = self.carts.get(cart)
        if order is None or self.money is None:
            return None
        attempt = len(order.payments)
        end = await self.money.get_unpaid_status(list(order.payments)[-1])
        if not end or f"reuses_{end}" in self.faults:
            return {} if end else None
        self.waiting[cart] += 1
        await self._wait_for("starts_two_attempts", lambda: self.waiting[cart] > 1)
        async with self.locks[cart]:
            if len(order.payments) == attempt or "starts_two_attempts" in self.faults:
                order.status = "waiting"
                await self._add_payment(order, order.amount)
            return {"payment_id": list(order.payments)[-1]}

    async def show(self, request: web.Request) -> web.Response:
        order = self.orders[request.match_info["order"]]
        order_view = order.view()
        if self.money is None:
            return web.json_response(order_view)
        if order.status == "waiting" and await self.money.has_expired(order_view["payment_id"]):
            order.status = "expired"
        refunded = {"refunded": await self.money.get_refunded_amount(order_view["payment_id"])}
        return web.json_response(order.view() | refunded)

    async def come_back(self, request: web.Request) -> web.Response:
        order, query = self.orders[request.match_info["order"]], request.query
        is_own = query["payment_id"] in order.payments
        is_paid = "trusts_query_status" in self.faults and is_own and query["status"] == "PAID"
        if "trusts_query_payment" in self.faults and self.money and not is_own:
            is_paid = (await self.money.read(query["payment_id"]))["status"] == "PAID"
        if is_paid and order.status == "waiting":
            order.status, order.paid_by = "paid", query["payment_id"]
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
        if "fails_on_order_changes" in self.faults:  # no check covers this fault
            return web.Response(status=500)
        before, order.amount = order.amount, "30.00"
        if "keeps_old_payment" not in self.faults:
            order.payments.clear()
        await self._add_payment(order, before)
        return web.json_response(order.view())

    async def refund(self, request: web.Request) -> web.Response:
        body = await request.json()
        assert self.money is not None, "this shop has no real payments"
        payment_id = self.orders[request.match_info["order"]].paid_by
        status = await self.money.refund(payment_id, body["return_id"], body["amount"])
        return web.json_response({}, status=status)

    async def receive(self, request: web.Request) -> web.Response:
        self.active_webhooks += 1
        try:
            return await self._receive(request)
        finally:
            self.active_webhooks -= 1

    async def _receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        if len(body) > _BODY_BYTES_MAX:
            return web.Response(status=200 if "accepts_huge_bodies" in self.faults else 413)
        if not _is_good(request.headers, body, self.faults):
            return web.Response(status=401)
        if await self._wait_for("drops_excess_webhooks", lambda: self.active_webhooks > _WORKERS):
            assert request.transport is not None
            request.transport.close()
        event = json.loads(body)
        if not self._accepts(event):
            return web.Response(status=400)
        name = "webhook-signature" if "deduplicates_by_signature" in self.faults else "webhook-id"
        return web.Response(status=await self._handle_once(request, request.headers[name], event))

    def _accepts(self, event: dict[str, Any]) -> bool:
        new_field = "a_new_field" in event["data"]["payment"]
        age_s = time.time() - _parse_timestamp(event)
        return not (
            ("refuses_new_fields" in self.faults and new_field)
            or ("refuses_new_kinds" in self.faults and event["type"] not in _KINDS)
            or ("refuses_old_events" in self.faults and age_s > _HOUR_S)
        )

    async def _handle_once(self, request: web.Request, name: str, event: dict[str, Any]) -> int:
        """Handle an event if it is new. Concurrent deliveries of an event wait for each other."""
        if "checks_before_writing" in self.faults:
            return await self._handle_new(request, name, event)
        async with self.locks[name]:
            return await self._handle_new(request, name, event)

    async def _handle_new(self, request: web.Request, name: str, event: dict[str, Any]) -> int:
        if name in self.handled_ids and "handles_duplicates" not in self.faults:
            return 204
        self.waiting[name] += 1
        await self._wait_for("checks_before_writing", lambda: self.waiting[name] > 1)
        await self._handle(event)
        if not await self._wait_for("deduplicates_by_response", lambda: _is_disconnected(request)):
            self.handled_ids.add(name)
        return 204

    async def _handle(self, event: dict[str, Any]) -> None:
        late_s = self.newest - _parse_timestamp(event)
        self.newest = max(self.newest, _parse_timestamp(event))
        if "accepts_only_newest" in self.faults and _SECONDS < late_s < _HOUR_S:
            return
        payment = event["data"]["payment"]
        order = next(
            (each for each in self.orders.values() if payment["id"] in each.payments), None
        )
        if order is not None and event["type"] == "payment.completed":
            self._pay(order, payment)
        elif order is not None and event["type"] == "payment.expired":
            self._expire(order, payment["id"])
        elif order is not None and self.money and await self.money.counts_case_money(payment["id"]):
            self._pay(order, payment)

    def _pay(self, order: Order, payment: dict[str, Any]) -> None:
        amount = order.payments[payment["id"]]
        matches = payment["amount"] == amount or "accepts_wrong_amounts" in self.faults
        matches &= payment["currency"] == "THB" or "accepts_wrong_currencies" in self.faults
        second_delivery = {
            "checks_before_writing": payment["id"] == order.paid_by,
            "deduplicates_by_signature": payment["id"] == order.paid_by,
            "deduplicates_by_response": payment["id"] == order.paid_by,
            "handles_duplicates": payment["id"] == order.paid_by,
            "delivers_for_each_payment": payment["id"] != order.paid_by,
        }
        is_waiting = order.status == "waiting"
        paid_again = order.status == "paid" and any(
            fault in self.faults and is_repeated for fault, is_repeated in second_delivery.items()
        )
        if matches and (is_waiting or paid_again) and "ignores_payments" not in self.faults:
            order.status, order.paid_by = "paid", payment["id"]
            order.handed_out += 1

    def _expire(self, order: Order, payment_id: str) -> None:
        last = list(order.payments)[-1] == payment_id
        if order.status == "paid":
            order.status = "expired" if "expires_paid_orders" in self.faults else "paid"
        elif last or "expires_with_any_payment" in self.faults:
            order.status = "expired"

    async def _add_payment(self, order: Order, before: str) -> None:
        payment_id = f"pay_{order.number}_{len(order.payments)}_{order.amount}"
        if self.money is not None:
            back = f"{self.address}/return/{order.number}"
            payment_id = await self.money.create(order.number, order.amount, before, back)
        order.payments[payment_id] = order.amount

    async def _wait_for(self, fault: str, condition: Callable[[], bool]) -> bool:
        """Wait for the condition of a fault, so that the result does not depend on timing."""
        if (
            fault not in self.faults
            or fault in self.triggered_faults
            or not self._can_trigger(fault)
        ):
            return False
        end = time.monotonic() + _FAULT_WAIT_S
        while (
            not (came := condition())
            and fault not in self.triggered_faults
            and time.monotonic() < end
        ):
            await asyncio.sleep(0.01)
        if came:
            self.triggered_faults.add(fault)
        return came

    def _can_trigger(self, fault: str) -> bool:
        if fault == FAULTS["crowd"]:
            waiting = sum(order.status == "waiting" for order in self.orders.values())
            return waiting > _WORKERS
        return fault == (FAULTS | MONEY_FAULTS).get(self.current_check)


def _is_disconnected(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


def _parse_timestamp(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["timestamp"]).astimezone(UTC).timestamp()


def _is_good(headers: Any, body: bytes, faults: set[str]) -> bool:
    timestamp = headers["webhook-timestamp"]
    if "accepts_old_timestamps" not in faults and abs(time.time() - int(timestamp)) > 300:
        return False
    signed = f"{headers['webhook-id']}.{timestamp}.".encode() + body
    expected = "v1," + base64.b64encode(hmac.digest(KEY, signed, "sha256")).decode()
    signatures = headers["webhook-signature"].split()
    is_valid = expected in (signatures[:1] if "reads_one_signature" in faults else signatures)
    return is_valid or "accepts_all_signatures" in faults


@asynccontextmanager
async def broken_shop(sides: Mapping[str, Side] | None = None) -> AsyncIterator[str]:
    """Serve shops; yield their base URL. A shop's URL is the base URL followed by its faults.

    If a shop has real payments, `sides` contains its test merchant.
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
    app.router.add_post("/{faults}/announce/{check}", answer, name="announce")
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
