"""The demo: five payments, one for each way to end, against a running sandbox."""

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import msgspec
from rich.console import Console
from rich.markup import escape

from payintent.sandbox.shop.webhook import read_secret, verify

PATIENCE_S = 30.0
POLL_S = 0.2
CALL_TIMEOUT_S = 30.0
LATE_CALLBACK_S = 60.0  # the simulator's delay, before its time scale
EXPIRES_IN_S = 2

APPROVED = "4242424242424242"
DECLINED = "4000000000000002"
PAID_TOO_LATE = "4000009900000053"

_CHECKOUT_ID = re.compile(r"\b(cs_[0-9A-Za-z]{4})[0-9A-Za-z]+")
_CREATED, _OK, _SEE_OTHER, _CONFLICT = 201, 200, 303, 409
_INTERRUPTED = 130

Fields = dict[str, Any]


class StepError(Exception):
    """A step went otherwise than it should; the message says how."""


@dataclass(frozen=True, slots=True)
class Merchant:
    """The merchant that the demo acts for."""

    name: str
    api_key: str = field(repr=False)
    callback_secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What `dev.json` tells of a running sandbox."""

    api_url: str
    simulator_url: str
    shop_url: str
    merchants: list[Merchant]
    sim_time_scale: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where the flows play: the sandbox, a connection, and the spectator's terminal."""

    sandbox: Sandbox
    http: aiohttp.ClientSession
    console: Console
    payment_ids: list[str] = field(default_factory=list[str])

    def say(self, text: str) -> None:
        """Print one step that went as expected."""
        self.console.print(f"  [green]✓[/] {escape(masked(text))}")

    async def call(
        self, method: str, path: str, wanted: int = _OK, *, keyed: bool = False, **body: Any
    ) -> Fields:
        """Call the API, as the merchant where `keyed`, else as the buyer's browser would."""
        headers: dict[str, str] = {}
        if keyed:
            headers["Authorization"] = f"Bearer {self.sandbox.merchants[0].api_key}"
        if method == "POST":
            headers["Idempotency-Key"] = str(uuid4())
        async with self.http.request(
            method, self.sandbox.api_url + path, headers=headers, json=body or None
        ) as answer:
            fields: Fields = await answer.json(content_type=None)
            if answer.status != wanted:
                raise StepError(f"{method} {path}: {answer.status} {fields}, expected {wanted}")
            return fields

    async def create(self, amount: str, currency: str, title: str, **more: Any) -> Fields:
        """Create a payment as the merchant."""
        payment = await self.call(
            "POST",
            "/payments",
            _CREATED,
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

    async def quotes(self, payment: Fields) -> list[Fields]:
        """List the ways to pay at the simulator, where cards are only played with."""
        answer = await self.call("GET", f"/checkout/{payment['checkout_id']}/quotes")
        quotes = [quote for quote in answer["quotes"] if quote["provider"] == "simulator"]
        if not quotes:
            raise StepError(f"no quote of the simulator among {answer['quotes']}")
        shown = ", ".join(
            f"#{quote['payment_method_id']} {quote['label']} {quote['total_amount']} "
            f"{quote['currency']}"
            for quote in quotes
        )
        self.say(f"quotes for {answer['country']}: {shown}")
        return quotes

    async def select(self, payment: Fields, quote: Fields) -> Fields:
        """Select a quote as the buyer."""
        selected = await self.call(
            "POST",
            f"/checkout/{payment['checkout_id']}/quotes",
            payment_method_id=quote["payment_method_id"],
            currency=quote["currency"],
            expected_total_amount=quote["total_amount"],
        )
        expect("next_action", selected["next_action"]["type"], "redirect")
        self.say(
            f"selected #{quote['payment_method_id']} {quote['label']}: "
            f"{selected['checkout']['status']}, session {selected['session']['id']}"
        )
        return selected

    async def pay(self, selected: Fields, card: str) -> None:
        """Enter a card at the gateway's page, as the buyer."""
        url = selected["next_action"]["redirect"]["url"]
        async with self.http.post(url, data={"card": card}, allow_redirects=False) as answer:
            if answer.status != _SEE_OTHER:
                raise StepError(f"the gateway's page answered {answer.status}")
            where = answer.headers["Location"]
        self.say(f"card {card} at the gateway's page: sent back to {where}")

    async def webhook(self, payment: Fields, kind: str) -> Fields:
        """Wait until the shop has the payment's event, and verify its signature once more."""
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
        """List the events that the shop has of a payment, each once."""
        url = f"{self.sandbox.shop_url}/webhooks.json"
        async with self.http.get(url, params={"payment_id": payment_id}) as answer:
            deliveries: list[Fields] = await answer.json()
        return [delivery for delivery in deliveries if not delivery["duplicate"]]

    async def shows(self, payment: Fields, status: str, *names: str) -> Fields:
        """Read the payment as the merchant; it has this status, and these fields are there."""
        seen = await self.call("GET", f"/payments/{payment['id']}", keyed=True)
        expect("status", seen["status"], status)
        missing = [name for name in names if name not in seen]
        if missing:
            raise StepError(f"GET /payments/{payment['id']} shows no {', '.join(missing)}")
        shown = "".join(f", {name} {seen[name]}" for name in names)
        self.say(f"GET shows {status}{shown}")
        return seen

    async def until(
        self, what: str, ask: Callable[[], Awaitable[list[Fields]]], patience_s: float = PATIENCE_S
    ) -> list[Fields]:
        """Ask until there is something; refused (`StepError`) when patience ends."""
        deadline = time.monotonic() + patience_s
        with self.console.status(f"waiting for {what}, {patience_s:.0f} s at most"):
            while not (found := await ask()):
                if time.monotonic() > deadline:
                    raise StepError(f"no {what} within {patience_s:.0f} s")
                await asyncio.sleep(POLL_S)
        return found


async def pay_by_card(stage: Stage) -> None:
    """Play the ordinary case."""
    payment = await stage.create("1590.00", "THB", "Tides of the Chao Phraya")
    quotes = await stage.quotes(payment)
    await stage.pay(await stage.select(payment, quotes[0]), APPROVED)
    told = await stage.webhook(payment, "payment.completed")
    seen = await stage.shows(payment, "PAID", "receipt_id", "provider", "paid_at")
    expect("receipt_id", told["receipt_id"], seen["receipt_id"])


async def decline(stage: Stage) -> None:
    """Play a card that is declined."""
    payment = await stage.create("49.90", "USD", "A Field Guide to Ledgers")
    quotes = await stage.quotes(payment)
    await stage.pay(await stage.select(payment, quotes[0]), DECLINED)
    told = await stage.webhook(payment, "payment.failed")
    expect("failure_reason", told["failure_reason"], "DECLINED")
    await stage.shows(payment, "FAILED", "failure_reason", "failed_at")


async def change_method(stage: Stage) -> None:
    """Play money that comes by a method which the buyer has left."""
    payment = await stage.create("2400", "JPY", "One Hundred Mornings in Kyoto")
    quotes = await stage.quotes(payment)
    left, taken = quotes[0], quotes[-1]
    if left is taken:
        raise StepError("the merchant needs two payment methods of the simulator")
    first = await stage.select(payment, left)
    await stage.pay(first, PAID_TOO_LATE)
    await stage.pay(await stage.select(payment, taken), APPROVED)
    await stage.webhook(payment, "payment.completed")
    before = await stage.shows(payment, "PAID", "receipt_id", "payment_method_id")
    expect("payment_method_id", before["payment_method_id"], taken["payment_method_id"])
    await _late_callback(stage, first["session"]["id"])
    after = await stage.shows(payment, "PAID", "receipt_id", "payment_method_id")
    if after != before:
        raise StepError("the late callback changed the payment")
    stage.say("the late money changed nothing here; the service keeps it as a case to decide")


async def _late_callback(stage: Stage, session_id: str) -> None:
    """Wait until the gateway has told of the abandoned session, and was answered."""
    delay_s = LATE_CALLBACK_S / stage.sandbox.sim_time_scale

    async def told() -> list[Fields]:
        async with stage.http.get(f"{stage.sandbox.simulator_url}/_sim/log") as answer:
            entries: list[Fields] = await answer.json()
        return [
            entry
            for entry in entries
            if entry.get("reference") == session_id and entry.get("status") == _OK
        ]

    what = f"the gateway's callback for the method left, about {delay_s:.0f} s late"
    [callback, *_] = await stage.until(what, told, delay_s + PATIENCE_S)
    expect("callback", callback["type"], "session.paid")
    stage.say(f"late callback {callback['type']} for {session_id}: answered {callback['status']}")


async def cancel(stage: Stage) -> None:
    """Play a merchant who cancels, twice."""
    payment = await stage.create("1590.00", "THB", "Tides of the Chao Phraya")
    path = f"/payments/{payment['id']}/cancel"
    answer = await stage.call("POST", path, keyed=True)
    stage.say(f"POST cancel answers {answer['status']}")
    await stage.webhook(payment, "payment.cancelled")
    await stage.shows(payment, "CANCELLED", "cancelled_at")
    refused = await stage.call("POST", path, _CONFLICT, keyed=True)
    expect("code", refused["code"], "INVALID_PAYMENT_STATE")
    stage.say(f"a second cancel is refused: {_CONFLICT} {refused['code']}")


async def expire(stage: Stage) -> None:
    """Play a buyer who never comes."""
    payment = await stage.create(
        "49.90", "USD", "A Field Guide to Ledgers", expires_in=EXPIRES_IN_S
    )
    await stage.webhook(payment, "payment.expired")
    await stage.shows(payment, "EXPIRED", "expired_at")


FLOWS: tuple[tuple[str, Callable[[Stage], Awaitable[None]]], ...] = (
    ("Pay by card", pay_by_card),
    ("A declined card", decline),
    ("Another method, and money that comes too late", change_method),
    ("Cancelled by the merchant", cancel),
    ("Expired", expire),
)


def expect(what: str, actual: object, wanted: object) -> None:
    """Refuse (`StepError`) a value that is not the expected one."""
    if actual != wanted:
        raise StepError(f"{what} is {actual}, expected {wanted}")


def masked(text: str) -> str:
    """Hide most of every checkout id: who has one may pay, and cancel."""
    return _CHECKOUT_ID.sub(r"\1…", text)


def read_sandbox(path: Path) -> Sandbox:
    """Read `dev.json`; refused (`StepError`) where no sandbox has written it."""
    try:
        sandbox = msgspec.json.decode(path.read_bytes(), type=Sandbox)
    except OSError:
        raise StepError(f"{path} is missing: start `make dev` first") from None
    except msgspec.DecodeError as error:
        raise StepError(f"{path} is not what `make dev` writes: {error}") from None
    if not sandbox.merchants:
        raise StepError(f"{path} names no merchant")
    return sandbox


async def play(sandbox: Sandbox, console: Console) -> bool:
    """Play every flow, also after one that failed; tell whether all went as expected."""
    good = 0
    timeout = aiohttp.ClientTimeout(total=CALL_TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        stage = Stage(sandbox=sandbox, http=http, console=console)
        await _check_awake(stage)
        for number, (title, flow) in enumerate(FLOWS, start=1):
            console.print(f"[bold]{number}. {title}[/]")
            good += await _went_well(console, flow(stage))
        console.print("[bold]And in the end[/]")
        once = await _went_well(console, _ended_once(stage))
    console.print(f"demo: {good} of {len(FLOWS)} flows as expected")
    return once and good == len(FLOWS)


async def _check_awake(stage: Stage) -> None:
    url = stage.sandbox.shop_url
    try:
        async with stage.http.get(f"{url}/healthz") as answer:
            answer.raise_for_status()
    except (aiohttp.ClientError, TimeoutError):
        raise StepError(f"nothing answers at {url}: start `make dev` first") from None


async def _ended_once(stage: Stage) -> None:
    """Look at all payments again: one event each, whatever came after it."""
    for payment_id in stage.payment_ids:
        expect(f"the number of events of {payment_id}", len(await stage.webhooks(payment_id)), 1)
    stage.say(f"{len(stage.payment_ids)} payments, and exactly one event of each")


async def _went_well(console: Console, act: Awaitable[None]) -> bool:
    try:
        await act
    except StepError as error:
        why = str(error)
    except (aiohttp.ClientError, TimeoutError) as error:
        why = f"no answer: {str(error) or type(error).__name__}"
    except (KeyError, ValueError) as error:
        why = f"an answer is not as documented: {error!r}"
    else:
        return True
    console.print(f"  [red]✗ {escape(masked(why))}[/]")
    return False


def main() -> None:
    """Play the demo in this terminal; the exit code is 1 where anything was unexpected."""
    console = Console(highlight=False, soft_wrap=True)
    try:
        sandbox = read_sandbox(Path(os.environ.get("VAR_DIR", "var")) / "dev.json")
        went_well = asyncio.run(play(sandbox, console))
    except StepError as error:
        sys.exit(f"demo: {error}")
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    sys.exit(0 if went_well else 1)


if __name__ == "__main__":
    main()
