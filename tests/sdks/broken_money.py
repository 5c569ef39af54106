"""The payments and refunds of the broken shop, which are real, with their faults."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import NAMESPACE_URL, uuid4, uuid5

import aiohttp

#: Each check that needs payments really made, and the fault that fails it.
MONEY_FAULTS = {
    "real": "asks_another_amount",
    "real_change": "keeps_the_old_amount",
    "forged_return": "believes_the_query",
    "other_return": "reads_the_payment_of_the_query",
    "lost_webhook": "never_polls",
    "paid_again": "sells_paid_orders_again",
    "buyer_cancelled": "reuses_cancelled",
    "failed_again": "reuses_failed",
    "expired_again": "reuses_expired",
    "double_click_again": "begins_two_attempts",
    "paid_late": "ends_by_its_own_clock",
    "late_money": "hands_out_for_cases",
    "refund_twice": "refunds_each_click",
    "refund_race": "says_yes_to_all_refunds",
    "refunded_elsewhere": "knows_its_own_refunds",
    "refund_declined": "believes_asked_refunds",
}
_CREATED = 201
_UNPAID = {"CANCELLED", "FAILED", "EXPIRED"}


@dataclass(frozen=True, kw_only=True)
class Side:
    """A test merchant of the service."""

    base_url: str
    key: str


@dataclass
class Money:
    """A shop's requests to the service, with its faults."""

    side: Side
    http: aiohttp.ClientSession
    faults: set[str]
    own: defaultdict[str, Decimal] = field(default_factory=lambda: defaultdict(Decimal))

    async def create(self, order: str, amount: str, before: str, return_url: str) -> str:
        """Create an order's payment, whose amount was different `before`; return its id."""
        if "asks_another_amount" in self.faults:
            amount = "1.00"
        if "keeps_the_old_amount" in self.faults:
            amount = before
        body = {"amount": amount, "currency": "THB", "payer_uid": f"buyer-{order}"}
        body["return_url"] = return_url
        return (await self._ask("POST", "/payments", body, str(uuid4())))[1]["id"]

    async def unpaid_end(self, payment_id: str) -> str:
        """Return how a payment ended without money, such as `cancelled`, or ""."""
        status = (await self.read(payment_id))["status"]
        return status.lower() if status in _UNPAID else ""

    async def is_over(self, payment_id: str) -> bool:
        """Return whether the shop ends an order, because its open payment has expired."""
        if "ends_by_its_own_clock" not in self.faults:
            return False
        ends = (await self.read(payment_id)).get("expires_at")
        return ends is not None and datetime.fromisoformat(ends) <= datetime.now(UTC)

    async def finds_money(self, payment_id: str) -> bool:
        """Return whether the shop counts a case's money as paid."""
        if "hands_out_for_cases" not in self.faults:
            return False
        return bool((await self._ask("GET", f"/cases?payment_id={payment_id}"))[1]["data"])

    async def refund(self, payment_id: str, return_id: str, amount: str) -> int:
        """Request a refund, and wait for its end; return the shop's response."""
        key = uuid4() if "refunds_each_click" in self.faults else uuid5(NAMESPACE_URL, return_id)
        path = f"/payments/{payment_id}/refunds"
        status, refund = await self._ask("POST", path, {"amount": amount}, str(key))
        while refund.get("status") == "PENDING":
            await asyncio.sleep(0.02)
            refund = (await self._ask("GET", f"/refunds/{refund['id']}"))[1]
        given = refund.get("status") == "SUCCEEDED"
        if given == ("believes_asked_refunds" not in self.faults) and status == _CREATED:
            self.own[payment_id] += Decimal(amount)
        return 201 if status == _CREATED or "says_yes_to_all_refunds" in self.faults else 409

    async def refunded(self, payment_id: str) -> str:
        """Return the refunded amount that the shop reports."""
        if "knows_its_own_refunds" in self.faults:
            return str(self.own[payment_id])
        given = Decimal((await self.read(payment_id))["refunded_amount"])
        if "believes_asked_refunds" in self.faults:
            given += self.own[payment_id]  # those that failed
        return str(given)

    async def read(self, payment_id: str) -> dict[str, Any]:
        return (await self._ask("GET", f"/payments/{payment_id}"))[1]

    async def _ask(
        self, method: str, path: str, body: Any = None, key: str = ""
    ) -> tuple[int, dict[str, Any]]:
        headers = {"Authorization": f"Bearer {self.side.key}"}
        headers |= {"Idempotency-Key": key} if key else {}
        url = f"{self.side.base_url}/v1{path}"
        async with self.http.request(method, url, json=body, headers=headers) as answer:
            return answer.status, await answer.json()
