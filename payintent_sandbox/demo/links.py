"""The demo's payment link: a merchant without a shop sells one ticket."""

from payintent_sandbox.demo.buyers import Browser
from payintent_sandbox.demo.stage import CREATED, DemoStage, expect

_APPROVED = "4242424242424242"


async def pay_with_link(stage: DemoStage) -> None:
    """Create a single-use link, pay with it, and check that it is used up."""
    link = await stage.call(
        "POST",
        "/payment-links",
        CREATED,
        keyed=True,
        title="Workshop ticket",
        currency="THB",
        amount="450.00",
        max_uses=1,
    )
    stage.say(f"created {link['id']}: 450.00 THB, {link['status']}, {link['url']}")
    browser = Browser(stage.http)
    await browser.open("GET", link["url"])
    await browser.submit()
    checkout_id = browser.url.rpartition("/")[2]
    payment_id = (await stage.call("GET", f"/checkout/{checkout_id}"))["payment_id"]
    stage.payment_ids.append(payment_id)
    payment = {"id": payment_id, "checkout_id": checkout_id}
    stage.say(f"the buyer submitted the form: payment {payment_id}")
    [quote, *_] = await stage.quotes(payment)
    await stage.pay(await stage.select(payment, quote), _APPROVED)
    notified = await stage.webhook(payment, "payment.completed")
    expect("payment_link_id", notified["metadata"]["payment_link_id"], link["id"])
    await stage.shows(payment, "PAID")
    link = await stage.call("GET", f"/payment-links/{link['id']}", keyed=True)
    expect("link", (link["status"], link["uses"]), ("USED_UP", 1))
    stage.say(f"GET {link['id']}: USED_UP, 1 use")
