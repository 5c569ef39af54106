"""Simulated buyers and merchants, who repeat requests with the same key until they succeed."""

import asyncio
import json
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin
from uuid import uuid4

import aiohttp

from drills.books.kinds import STRIPE, Kind

_RETRY_S = 0.2
_LOOK_S = 0.3
_PAID_S = 90.0  # the result may arrive only after an inquiry
_OK, _CREATED, _SEE_OTHER = 200, 201, 303
_AGAIN = frozenset({429, 502, 503})
AMOUNT, CURRENCY = "49.90", "USD"


class StuckError(Exception):
    """A response after which a client cannot continue. The message contains the response."""


@dataclass(frozen=True, slots=True)
class Shop:
    id: int
    api_key: str = field(repr=False)


@dataclass(slots=True)
class Market:
    """Runs payments in all shops, and records the responses."""

    api_url: str
    checkout_base: str
    stripe_url: str
    http: aiohttp.ClientSession
    kinds: dict[str, str] = field(default_factory=dict[str, str])  # by payment ID
    answers: Counter[int] = field(default_factory=Counter[int])
    broken: int = 0  # requests without a response

    async def live(self, shop: Shop, kind: Kind) -> None:
        """Create a payment, and perform all actions of its buyer and merchant."""
        payment = await self._create(shop, kind)
        if kind.cancels:
            await self._ask(shop, "POST", f"/payments/{payment['id']}/cancel", key=str(uuid4()))
        if not kind.card:
            return
        intent = await self._pay(shop, payment, kind)
        if (kind.refunds or kind.dispute) and await self._is_paid(shop, payment):
            refunds = [self._refund(shop, payment, amount) for amount in kind.refunds]
            await asyncio.gather(*refunds)
            if kind.dispute:
                await self._dispute(intent, kind.dispute)

    async def _create(self, shop: Shop, kind: Kind) -> dict[str, Any]:
        body: dict[str, Any] = {"currency": CURRENCY, "amount": AMOUNT, "payer_uid": kind.name}
        if kind.expires_in:
            body["expires_in"] = kind.expires_in
        _, payment = await self._ask(shop, "POST", "/payments", body, str(uuid4()))
        if payment["id"] in self.kinds:
            raise StuckError(f"{payment['id']} was created with two keys")
        self.kinds[payment["id"]] = kind.name
        return payment

    async def _pay(self, shop: Shop, payment: dict[str, Any], kind: Kind) -> str:
        """Select a method and enter the card. For Stripe, return the payment intent."""
        path = f"/checkout/{payment['checkout_id']}/quotes"
        _, checkout = await self._ask(shop, "GET", path)
        provider = STRIPE if kind.gateway == STRIPE else "simulator"
        [quote, *_] = [quote for quote in checkout["quotes"] if quote["provider"] == provider]
        selection = {"payment_method_id": quote["payment_method_id"]}
        _, selected = await self._ask(shop, "POST", path, selection)
        action = selected["next_action"]
        if kind.gateway == STRIPE:
            return await self._confirm(action["embedded_card"], kind.card)
        await self._post(action["redirect"]["url"], data={"card": kind.card})
        if kind.comes_back:
            with suppress(aiohttp.ClientError, TimeoutError):
                url = f"{self.checkout_base}/{payment['checkout_id']}/return"
                async with self.http.get(url, allow_redirects=False) as answer:
                    await answer.read()
        return ""

    async def _confirm(self, element: dict[str, Any], card: str) -> str:
        secret: str = element["client_secret"]
        body = {"key": element["publishable_key"], "client_secret": secret, "number": card}
        await self._post(urljoin(element["script_url"], "confirm"), json=body)
        return secret.partition("_secret_")[0]

    async def _is_paid(self, shop: Shop, payment: dict[str, Any]) -> bool:
        deadline = asyncio.get_running_loop().time() + _PAID_S
        while asyncio.get_running_loop().time() < deadline:
            _, stored = await self._ask(shop, "GET", f"/payments/{payment['id']}")
            if stored["status"] not in ("PENDING", "PROCESSING"):
                return stored["status"] == "PAID"
            await asyncio.sleep(_LOOK_S)
        return False

    async def _refund(self, shop: Shop, payment: dict[str, Any], amount: str) -> None:
        body = {"amount": amount} if amount else {}
        await self._ask(shop, "POST", f"/payments/{payment['id']}/refunds", body, str(uuid4()))

    async def _dispute(self, intent: str, decision: str) -> None:
        dispute = await self._post(
            f"{self.stripe_url}/_sandbox/disputes", json={"payment_intent": intent}
        )
        if decision != "open":
            path = f"/_sandbox/disputes/{dispute['id']}"
            await self._post(f"{self.stripe_url}{path}", json={"status": decision})

    async def _post(self, url: str, **body: Any) -> Any:
        """Send a request to a gateway. It is not retried, because gateways are never stopped."""
        async with self.http.post(url, allow_redirects=False, **body) as answer:
            text = await answer.text()
            if answer.status not in (_OK, _SEE_OTHER):
                raise StuckError(f"{url}: {answer.status} {text[:200]}")
            return json.loads(text) if answer.content_type == "application/json" else None

    async def _ask(
        self, shop: Shop, method: str, path: str, body: Any = None, key: str | None = None
    ) -> tuple[int, Any]:
        """Send a request, and repeat it while the response is temporary or missing."""
        headers = {"Authorization": f"Bearer {shop.api_key}"}
        if key is not None:
            headers["Idempotency-Key"] = key
        while True:
            try:
                async with self.http.request(
                    method, self.api_url + path, json=body, headers=headers
                ) as answer:
                    status, content = answer.status, json.loads(await answer.read())
            except (aiohttp.ClientError, TimeoutError):
                self.broken += 1
            else:
                self.answers[status] += 1
                if status in (_OK, _CREATED):
                    return status, content
                if "/refunds" in path and status in (409, 422) and content["code"] != "CONFLICT":
                    return status, content  # another refund used the remaining amount
                if status not in _AGAIN and content.get("code") != "CONFLICT":
                    raise StuckError(
                        f"{method} {path.split('/')[1]}: {status} {content.get('code')}"
                    )
            await asyncio.sleep(_RETRY_S)
