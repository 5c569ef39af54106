"""Runs the demo: a payment for each final status, and refunds, in a running sandbox."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
from rich.console import Console
from rich.markup import escape

from payintent.runtime.log import configure_standard_streams
from payintent_sandbox.demo.books import lose_a_dispute, pay_out, state_the_day
from payintent_sandbox.demo.deposits import pay_to_an_address
from payintent_sandbox.demo.links import pay_with_link
from payintent_sandbox.demo.outage import heal_an_outage
from payintent_sandbox.demo.refunds import decline_three_times, refund_otherwise, refund_with_each
from payintent_sandbox.demo.stage import (
    CALL_TIMEOUT_S,
    CONFLICT,
    FAILURES,
    OK,
    PATIENCE_S,
    DemoStage,
    Fields,
    RunningSandbox,
    StepError,
    expect,
    masked,
    read_sandbox,
    why,
)
from payintent_sandbox.demo.tokens import pay_in_tokens, pay_otherwise

LATE_CALLBACK_S = 60.0  # the simulator's delay, before time scaling
EXPIRES_IN_S = 2

APPROVED = "4242424242424242"
DECLINED = "4000000000000002"
PAID_TOO_LATE = "4000009900000053"

_INTERRUPTED = 130


async def pay_by_card(stage: DemoStage) -> None:
    """Demonstrate a payment that is paid by card."""
    payment = await stage.create("1590.00", "THB", "Tides of the Chao Phraya")
    quotes = await stage.quotes(payment)
    await stage.pay(await stage.select(payment, quotes[0]), APPROVED)
    notified = await stage.webhook(payment, "payment.completed")
    current = await stage.shows(payment, "PAID", "receipt_id", "provider", "paid_at")
    expect("receipt_id", notified["receipt_id"], current["receipt_id"])


async def decline(stage: DemoStage) -> None:
    """Demonstrate a declined card."""
    payment = await stage.create("49.90", "USD", "A Field Guide to Ledgers")
    quotes = await stage.quotes(payment)
    await stage.pay(await stage.select(payment, quotes[0]), DECLINED)
    failed = await stage.webhook(payment, "payment.failed")
    expect("failure_reason", failed["failure_reason"], "DECLINED")
    await stage.shows(payment, "FAILED", "failure_reason", "failed_at")


async def change_method(stage: DemoStage) -> None:
    """Demonstrate money that arrives through a method that the buyer has replaced."""
    payment = await stage.create("2400", "JPY", "One Hundred Mornings in Kyoto")
    quotes = await stage.quotes(payment)
    left, taken = quotes[0], quotes[-1]
    if left is taken:
        raise StepError("the merchant needs two of the simulator's payment methods")
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
    await stage.refunded_by_policy(payment, "ORPHAN_CAPTURE")


async def _late_callback(stage: DemoStage, session_id: str) -> None:
    """Wait until the gateway has reported the replaced session and received an acknowledgement."""
    delay_s = LATE_CALLBACK_S / stage.sandbox.sim_time_scale

    async def answered() -> list[Fields]:
        async with stage.http.get(f"{stage.sandbox.simulator_url}/_sim/log") as answer:
            entries: list[Fields] = await answer.json()
        return [
            entry
            for entry in entries
            if entry.get("reference") == session_id and entry.get("status") == OK
        ]

    what = f"the gateway's callback for the replaced method, about {delay_s:.0f} s late"
    [callback, *_] = await stage.until(what, answered, delay_s + PATIENCE_S)
    expect("callback", callback["type"], "session.paid")
    stage.say(f"late callback {callback['type']} for {session_id}: response {callback['status']}")


async def cancel(stage: DemoStage) -> None:
    """Cancel a payment as the merchant, twice."""
    payment = await stage.create("1590.00", "THB", "Tides of the Chao Phraya")
    path = f"/payments/{payment['id']}/cancel"
    answer = await stage.call("POST", path, keyed=True)
    stage.say(f"POST cancel returns {answer['status']}")
    await stage.webhook(payment, "payment.cancelled")
    await stage.shows(payment, "CANCELLED", "cancelled_at")
    refused = await stage.call("POST", path, CONFLICT, keyed=True)
    expect("code", refused["code"], "INVALID_PAYMENT_STATE")
    stage.say(f"a second cancellation is rejected: {CONFLICT} {refused['code']}")


async def expire(stage: DemoStage) -> None:
    """Demonstrate a payment that is never paid."""
    payment = await stage.create(
        "49.90", "USD", "A Field Guide to Ledgers", expires_in=EXPIRES_IN_S
    )
    await stage.webhook(payment, "payment.expired")
    await stage.shows(payment, "EXPIRED", "expired_at")


_Flow = Callable[[DemoStage], Awaitable[None]]

FLOWS: tuple[tuple[str, _Flow], ...] = (
    ("Paid by card", pay_by_card),
    ("Declined", decline),
    ("Paid with another method, and late money for the first method", change_method),
    ("Cancelled by the merchant", cancel),
    ("Expired", expire),
    ("Paid with a payment link", pay_with_link),
    ("Missed by an unreachable shop, and recovered from its event feed", heal_an_outage),
)
GATEWAY_FLOWS: tuple[tuple[str, _Flow], ...] = (
    ("Paid and refunded in two parts, with each gateway", refund_with_each),
    ("Declined three times, which ends the payment", decline_three_times),
    ("Refunds that are pending or refused, or get no response", refund_otherwise),
    ("Disputed at the bank, and lost", lose_a_dispute),
    ("Paid out to the merchant, up to the balance", pay_out),
    ("The merchant's day closed, and statements created", state_the_day),
)
TOKEN_FLOWS: tuple[tuple[str, _Flow], ...] = (
    ("Paid in tokens, on every chain", pay_in_tokens),
    ("Paid to an address in two transfers, swept, and refunded", pay_to_an_address),
    ("Rejected by the contract, underpaid, in the wrong token, or too late", pay_otherwise),
)


async def play(sandbox: RunningSandbox, console: Console) -> bool:
    """Run every flow, even after a failure; return whether all succeeded."""
    flows = [*FLOWS, *(TOKEN_FLOWS if sandbox.chains else ()), *GATEWAY_FLOWS]
    passed = 0
    timeout = aiohttp.ClientTimeout(total=CALL_TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        stage = DemoStage(sandbox=sandbox, http=http, console=console)
        await _check_awake(stage)
        for number, (title, flow) in enumerate(flows, start=1):
            console.print(f"[bold]{number}. {title}[/]")
            passed += await _went_well(console, flow(stage))
        console.print("[bold]Events for all payments[/]")
        once = await _went_well(console, _ended_once(stage))
    if not sandbox.chains:
        console.print("skipped token payments: the sandbox has no dev chains")
    console.print(f"demo: {passed} of {len(flows)} flows ended as expected")
    return once and passed == len(flows)


async def _check_awake(stage: DemoStage) -> None:
    url = stage.sandbox.shop_url
    try:
        async with stage.http.get(f"{url}/healthz") as answer:
            answer.raise_for_status()
    except (aiohttp.ClientError, TimeoutError):
        raise StepError(f"{url} does not respond: run `make dev` first") from None


async def _ended_once(stage: DemoStage) -> None:
    """Check that each payment has exactly one event."""
    for payment_id in stage.payment_ids:
        expect(f"the number of events for {payment_id}", len(await stage.webhooks(payment_id)), 1)
    stage.say(f"{len(stage.payment_ids)} payments, with exactly one event each")


async def _went_well(console: Console, act: Awaitable[None]) -> bool:
    try:
        await act
    except FAILURES as error:
        console.print(f"  [red]✗ {escape(masked(why(error)))}[/]")
        return False
    return True


def main() -> None:
    """Run the demo in this terminal. The exit status is 1 if any step failed."""
    configure_standard_streams()
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
