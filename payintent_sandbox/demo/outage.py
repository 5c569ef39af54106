"""The demo's outage: an unreachable shop misses an event, and recovers with the event feed."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlencode

from payintent_sandbox.demo.stage import ACCEPTED, DemoStage, Fields, StepError, expect

NOBODY = "http://127.0.0.1:9/webhooks"  # the `discard` port, on which nothing listens
WAIT_S = 25
PAGE = 100


async def heal_an_outage(stage: DemoStage) -> None:
    """Demonstrate how a shop recovers from an outage by reading missed events from the feed."""
    place = await _end_of_feed(stage)
    async with _away(stage):
        payment = await stage.create("1590.00", "THB", "Tides of the Chao Phraya")
        await stage.call("POST", f"/payments/{payment['id']}/cancel", keyed=True)
        entry = await _missed(stage, place, payment)
        expect("the webhooks that arrived", await stage.webhooks(payment["id"]), [])
        stage.say(
            f"the shop is unreachable; its feed contains {entry['event']['type']} {entry['id']}, "
            f"delivery {entry['delivery']['state']}"
        )
    await stage.call("POST", f"/events/{entry['id']}/replay", ACCEPTED, keyed=True)
    await stage.webhook(payment, "payment.cancelled")
    [received] = await stage.webhooks(payment["id"])
    expect("webhook-id", received["headers"]["webhook-id"], entry["id"])
    stage.say("the shop is back, and the event was sent again with the id from the feed")


async def _end_of_feed(stage: DemoStage) -> str:
    """Read the feed to its end, like a shop that has handled all events."""
    page = await _page(stage, limit=PAGE)
    while page["has_more"]:
        page = await _page(stage, limit=PAGE, after=page["after"])
    return page["after"]


async def _missed(stage: DemoStage, place: str, payment: Fields) -> Fields:
    """Wait for the payment's event in the feed after a cursor."""
    page = await _page(stage, after=place, wait=WAIT_S)
    for entry in page["data"]:
        if entry["event"]["data"]["payment"]["id"] == payment["id"]:
            return entry
    raise StepError(f"the feed has no event for {payment['id']} after {place}")


async def _page(stage: DemoStage, **query: object) -> Fields:
    return await stage.call("GET", f"/events?{urlencode(query)}", keyed=True)


@asynccontextmanager
async def _away(stage: DemoStage) -> AsyncGenerator[None]:
    """Send the shop's webhooks to a closed port while the block runs."""
    merchant_id = stage.sandbox.merchants[0].id
    response = await stage.operate("GET", f"merchant/show?merchant_id={merchant_id}")
    url = (response.get("merchant") or response)["callback_url"]
    await _set_url(stage, NOBODY)
    try:
        yield
    finally:
        await _set_url(stage, url)


async def _set_url(stage: DemoStage, url: str) -> None:
    merchant_id = stage.sandbox.merchants[0].id
    body = {"merchant_id": merchant_id, "callback_url": url}
    await stage.operate("POST", "merchant/set-callback-url", body)
