"""Shared steps of the demo's flows: API calls, the buyer's steps, checks and output."""

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import msgspec
from rich.console import Console
from rich.markup import escape

from payintent_sandbox.chains.rpc import DevChainError
from payintent_sandbox.shop.webhook import read_secret, verify

PATIENCE_S = 30.0
POLL_S = 0.2
CALL_TIMEOUT_S = 30.0

_CHECKOUT_ID = re.compile(r"\b(cs_[0-9A-Za-z]{4})[0-9A-Za-z]+")
OK, CREATED, ACCEPTED, SEE_OTHER = 200, 201, 202, 303
CONFLICT, UNPROCESSABLE, UNAVAILABLE = 409, 422, 503

Fields = dict[str, Any]


class StepError(Exception):
    """A step had an unexpected result, which the message describes."""


#: The expected errors of a step; any other exception is a bug in the demo.
FAILURES = (StepError, DevChainError, aiohttp.ClientError, TimeoutError, KeyError, ValueError)


@dataclass(frozen=True, slots=True)
class DemoMerchant:
    """The merchant that the demo acts for."""

    id: int
    name: str
    api_key: str = field(repr=False)
    callback_secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class DemoBuyer:
    """An account with tokens on a chain."""

    address: str
    private_key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class DemoChain:
    """A development chain, and an account that can pay on it."""

    rpc_url: str
    buyer: DemoBuyer


@dataclass(frozen=True, slots=True)
class DemoOperator:
    """An operator of the sandbox."""

    role: str
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class DemoGateway:
    """A gateway other than the simulator."""

    url: str


@dataclass(frozen=True, slots=True)
class RunningSandbox:
    """The fields of `dev.json` that the demo uses."""

    api_url: str
    simulator_url: str
    shop_url: str
    merchants: list[DemoMerchant]
    sim_time_scale: float = 1.0
    operator_url: str = ""
    operator_token: str = field(default="", repr=False)
    operators: list[DemoOperator] = field(default_factory=list[DemoOperator], repr=False)
    database_url: str = field(default="", repr=False)
    chains: dict[str, DemoChain] = field(default_factory=dict[str, DemoChain])
    gateways: dict[str, DemoGateway] = field(default_factory=dict[str, DemoGateway])


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoStage:
    """The sandbox, an HTTP client and a terminal, with the steps of the flows."""

    sandbox: RunningSandbox
    http: aiohttp.ClientSession
    console: Console
    payment_ids: list[str] = field(default_factory=list[str])

    def say(self, text: str) -> None:
        """Print a successful step."""
        self.console.print(f"  [green]✓[/] {escape(masked(text))}")

    async def call(
        self, method: str, path: str, expected: int = OK, *, keyed: bool = False, **body: Any
    ) -> Fields:
        """Call the API: as the merchant if `keyed`, otherwise as the buyer's browser."""
        headers: dict[str, str] = {}
        if keyed:
            headers["Authorization"] = f"Bearer {self.sandbox.merchants[0].api_key}"
        if method == "POST":
            headers["Idempotency-Key"] = str(uuid4())
        async with self.http.request(
            method, self.sandbox.api_url + path, headers=headers, json=body or None
        ) as answer:
            fields: Fields = await answer.json(content_type=None)
            if answer.status != expected:
                raise StepError(f"{method} {path}: {answer.status} {fields}, expected {expected}")
            return fields

    async def operate(
        self, method: str, path: str, body: Fields | None = None, expected: int = OK
    ) -> Fields:
        """Run an operation as the operator; the reason for changes is `make demo`.

        A second admin approves it if needed.
        """
        token = self.sandbox.operator_token
        status, fields = await self._operate(token, method, path, body)
        if status == ACCEPTED:
            approval = {"approval_id": fields["approval"]["id"]}
            others = (operator for operator in self.sandbox.operators if operator.token != token)
            admin = next(operator for operator in others if operator.role == "admin")
            status, fields = await self._operate(admin.token, "POST", "approval/approve", approval)
        if status != expected:
            raise StepError(f"{method} {path}: {status} {fields}, expected {expected}")
        return fields

    async def _operate(
        self, token: str, method: str, path: str, body: Fields | None
    ) -> tuple[int, Fields]:
        url = f"{self.sandbox.operator_url}/operator/{path}"
        headers = {"Authorization": f"Bearer {token}"}
        content = body | {"why": "make demo"} if body else None
        async with self.http.request(method, url, headers=headers, json=content) as answer:
            return answer.status, await answer.json()

    async def create(self, amount: str, currency: str, title: str, **more: Any) -> Fields:
        """Create a payment as the merchant."""
        payment = await self.call(
            "POST",
            "/payments",
            CREATED,
            keyed=True,
            amount=amount,
            currency=currency,
            payer_uid="demo-buyer",
            metadata={"product": {"name": title}, "order_id": f"D-{uuid4().hex[:6]}"},
            **more,
        )
        self.payment_ids.append(payment["id"])
        self.say(
            f"created {payment['id']}: {amount} {currency}, {payment['status']}, "
            f"checkout {payment['checkout_id']}"
        )
        return payment

    async def quotes(self, payment: Fields, provider: str = "simulator") -> list[Fields]:
        """List a gateway's quotes for a payment."""
        answer = await self.call("GET", f"/checkout/{payment['checkout_id']}/quotes")
        quotes = [quote for quote in answer["quotes"] if quote["provider"] == provider]
        if not quotes:
            raise StepError(f"no quote from {provider} among {answer['quotes']}")
        summary = ", ".join(
            f"#{quote['payment_method_id']} {quote['label']} {quote['total_amount']} "
            f"{quote['currency']}"
            for quote in quotes
        )
        self.say(f"quotes for {answer['country']}: {summary}")
        return quotes

    async def select(self, payment: Fields, quote: Fields, next_action: str = "redirect") -> Fields:
        """Select a quote as the buyer."""
        selected = await self.call(
            "POST",
            f"/checkout/{payment['checkout_id']}/quotes",
            payment_method_id=quote["payment_method_id"],
            currency=quote["currency"],
            expected_total_amount=quote["total_amount"],
        )
        expect("next_action", selected["next_action"]["type"], next_action)
        self.say(
            f"selected #{quote['payment_method_id']} {quote['label']}: "
            f"{selected['checkout']['status']}, session {selected['session']['id']}"
        )
        return selected

    async def pay(self, selected: Fields, card: str) -> None:
        """Enter a card on the gateway's page, as the buyer does."""
        url = selected["next_action"]["redirect"]["url"]
        async with self.http.post(url, data={"card": card}, allow_redirects=False) as answer:
            if answer.status != SEE_OTHER:
                raise StepError(f"the gateway's page returned {answer.status}")
            where = answer.headers["Location"]
        self.say(f"card {card} on the gateway's page: redirected to {where}")

    async def webhook(self, payment: Fields, kind: str) -> Fields:
        """Wait until the shop has the payment's event, and verify its signature again."""
        received = await self.until(f"webhook {kind}", lambda: self.webhooks(payment["id"]))
        headers, body = received[0]["headers"], received[0]["body"]
        key = read_secret(self.sandbox.merchants[0].callback_secret)
        if not verify(key, headers, body.encode(), time.time()):
            raise StepError(f"the signature of webhook {headers['webhook-id']} is wrong")
        event: Fields = json.loads(body)
        expect("webhook", event["type"], kind)
        self.say(f"webhook {kind} {headers['webhook-id']}, signature verified")
        return event["data"]["payment"]

    async def webhooks(self, payment_id: str) -> list[Fields]:
        """List the events that the shop has received for a payment, without duplicates."""
        url = f"{self.sandbox.shop_url}/webhooks.json"
        async with self.http.get(url, params={"payment_id": payment_id}) as answer:
            deliveries: list[Fields] = await answer.json()
        return [delivery for delivery in deliveries if not delivery["duplicate"]]

    async def shows(self, payment: Fields, status: str, *names: str) -> Fields:
        """Read the payment as the merchant, and check its status and these fields."""
        result = await self.call("GET", f"/payments/{payment['id']}", keyed=True)
        expect("status", result["status"], status)
        missing = [name for name in names if name not in result]
        if missing:
            raise StepError(f"GET /payments/{payment['id']} lacks {', '.join(missing)}")
        summary = "".join(f", {name} {result[name]}" for name in names)
        self.say(f"GET shows {status}{summary}")
        return result

    async def cases(self, payment: Fields) -> list[Fields]:
        """List a payment's cases as the operator."""
        fields = await self.operate("GET", f"payments/{payment['id']}")
        return fields["cases"]

    async def refunded_by_policy(self, payment: Fields, kind: str) -> None:
        """Wait until a payment's only case is refunded because of the merchant's `auto_refund`."""

        async def refunded() -> list[Fields]:
            return [case for case in await self.cases(payment) if case["status"] == "REFUNDED"]

        result = await self.until(f"a refunded {kind} case", refunded)
        expect("case", [case["kind"] for case in result], [kind])
        self.say(f"{kind}: the unassigned money was refunded")

    async def until(
        self, what: str, ask: Callable[[], Awaitable[list[Fields]]], patience_s: float = PATIENCE_S
    ) -> list[Fields]:
        """Call `ask` until it returns a value. Raises StepError after `patience_s` seconds."""
        deadline = time.monotonic() + patience_s
        with self.console.status(f"waiting up to {patience_s:.0f} s: {what}"):
            while not (result := await ask()):
                if time.monotonic() > deadline:
                    raise StepError(f"timed out after {patience_s:.0f} s: {what}")
                await asyncio.sleep(POLL_S)
        return result


Act = Callable[[DemoStage], Awaitable[str]]


async def together(stage: DemoStage, what: str, acts: Mapping[str, Act]) -> None:
    """Run actions concurrently, and print the name and result of each.

    Raises StepError after all have ended, if any failed.
    """
    quiet = [replace(stage, console=Console(quiet=True)) for _ in acts]
    with stage.console.status(f"waiting for {what}"):
        results = await asyncio.gather(
            *(act(quiet_stage) for act, quiet_stage in zip(acts.values(), quiet, strict=True)),
            return_exceptions=True,
        )
    failed: list[str] = []
    for name, line in zip(acts, results, strict=True):
        if isinstance(line, str):
            stage.say(f"{name}: {line}")
        elif isinstance(line, FAILURES):
            failed.append(f"{name}: {why(line)}")
        else:
            raise line
    if failed:
        raise StepError("; ".join(failed))


def why(error: BaseException) -> str:
    """Describe an error in a single line; `error` is one of `FAILURES`."""
    if isinstance(error, StepError):
        return str(error)
    if isinstance(error, DevChainError):
        return f"the dev chain: {error}"
    if isinstance(error, (aiohttp.ClientError, TimeoutError)):
        return f"no response: {str(error) or type(error).__name__}"
    return f"a response differs from its documentation: {error!r}"


def expect(what: str, actual: object, expected: object) -> None:
    """Raise StepError if a value is unexpected."""
    if actual != expected:
        raise StepError(f"{what} is {actual}, expected {expected}")


def seconds_since(began: float) -> str:
    """Format the time since a reading of the monotonic clock."""
    return f"{time.monotonic() - began:.1f} s"


def masked(text: str) -> str:
    """Mask every checkout id, because anyone who has an id can pay or cancel the payment."""
    return _CHECKOUT_ID.sub(r"\1…", text)


def read_sandbox(path: Path) -> RunningSandbox:
    """Read `dev.json`. Raises StepError if no sandbox has written it."""
    try:
        sandbox = msgspec.json.decode(path.read_bytes(), type=RunningSandbox)
    except OSError:
        raise StepError(f"{path} is missing: run `make dev` first") from None
    except msgspec.DecodeError as error:
        raise StepError(f"{path} was not written by this version of `make dev`: {error}") from None
    if not sandbox.merchants:
        raise StepError(f"{path} does not contain a merchant")
    return sandbox
