"""The real payments and refunds of the broken shop, with configurable faults."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import NAMESPACE_URL, uuid4, uuid5

import aiohttp

#: The fault that fails each check with real payments.
MONEY_FAULTS = {
    "real": "requests_wrong_amount",
    "real_change": "keeps_old_amount",
    "forged_return": "trusts_query_status",
    "other_return": "trusts_query_payment",
    "lost_webhook": "never_polls",
    "paid_again": "sells_paid_orders_again",
    "buyer_cancelled": "reuses_cancelled",
    "failed_again": "reuses_failed",
    "expired_again": "reuses_expired",
    "double_click_again": "starts_two_attempts",
    "paid_late": "expires_by_own_clock",
    "late_money": "delivers_for_cases",
    "refund_twice": "refunds_each_click",
    "refund_race": "accepts_all_refunds",
    "refunded_elsewhere": "ignores_outside_refunds",
    "refund_declined": "counts_requested_refunds",
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
    """The shop's requests to the service, with configurable faults."""

    side: Side
    http: aiohttp.ClientSession
    faults: set[str]
    recorded: defaultdict[str, Decimal] = field(default_factory=lambda: defaultdict(Decimal))

    async def create(self, order: str, amount: str, before: str, return_url: str) -> str:
        """Create a payment for an order; return its id. `before` is the previous amount."""
        if "requests_wrong_amount" in self.faults:
            amount = "1.00"
        if "keeps_old_amount" in self.faults:
            amount = before
        body = {"amount": amount, "currency": "THB", "payer_uid": f"buyer-{order}"}
        body["return_url"] = return_url
        return (await self._request("POST", "/payments", body, str(uuid4())))[1]["id"]

    async def get_unpaid_status(self, payment_id: str) -> str:
        """Return the status of an unpaid payment in lower case, or "" if it may be paid."""
        status = (await self.read(payment_id))["status"]
        return status.lower() if status in _UNPAID else ""

    async def has_expired(self, payment_id: str) -> bool:
        """Return whether the shop ends an order when its open payment expires."""
        if "expires_by_own_clock" not in self.faults:
            return False
        ends = (await self.read(payment_id)).get("expires_at")
        return ends is not None and datetime.fromisoformat(ends) <= datetime.now(UTC)

    async def counts_case_money(self, payment_id: str) -> bool:
        """Return whether the shop treats money in a case as a payment."""
        if "delivers_for_cases" not in self.faults:
            return False
        return bool((await self._request("GET", f"/cases?payment_id={payment_id}"))[1]["data"])

    async def refund(self, payment_id: str, return_id: str, amount: str) -> int:
        """Request a refund, and wait until it ends; return the shop's status code."""
        key = uuid4() if "refunds_each_click" in self.faults else uuid5(NAMESPACE_URL, return_id)
        path = f"/payments/{payment_id}/refunds"
        status, refund = await self._request("POST", path, {"amount": amount}, str(key))
        while refund.get("status") == "PENDING":
            await asyncio.sleep(0.02)
            refund = (await self._request("GET", f"/refunds/{refund['id']}"))[1]
        is_refunded = refund.get("status") == "SUCCEEDED"
        if is_refunded == ("counts_requested_refunds" not in self.faults) and status == _CREATED:
            self.recorded[payment_id] += Decimal(amount)
        return 201 if status == _CREATED or "accepts_all_refunds" in self.faults else 409

    async def get_refunded_amount(self, payment_id: str) -> str:
        """Return the refunded amount that the shop reports."""
        if "ignores_outside_refunds" in self.faults:
            return str(self.recorded[payment_id])
        amount = Decimal((await self.read(payment_id))["refunded_amount"])
        if "counts_requested_refunds" in self.faults:
            amount += self.recorded[payment_id]  # includes failed refunds
        return str(amount)

    async def read(self, payment_id: str) -> dict[str, Any]:
        return (await self._request("GET", f"/payments/{payment_id}"))[1]

    async def _request(
        self, method: str, path: str, body: Any = None, key: str = ""
    ) -> tuple[int, dict[str, Any]]:
        headers = {"Authorization": f"Bearer {self.side.key}"}
        headers |= {"Idempotency-Key": key} if key else {}
        url = f"{self.side.base_url}/v1{path}"
        async with self.http.request(method, url, json=body, headers=headers) as answer:
            return answer.status, await answer.json()
