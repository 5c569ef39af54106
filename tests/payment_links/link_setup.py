"""Setup for tests of payment links."""

from typing import Any
from uuid import uuid4

from payintent.merchants.access import MerchantDirectory
from payintent.merchants.limits import MerchantRateLimiter
from payintent.payment_links.create import create_link
from payintent.payment_links.model import PaymentLink
from payintent.payment_links.open_payment import LinkOrder, LinkPayments
from payintent.payment_links.schemas import CreateLinkBody
from payintent.payments.model import Payment
from tests.support.world import Answer, Api, World


def make_link_payments(world: World) -> LinkPayments:
    service = world.service
    return LinkPayments(
        database=service.database,
        settings=service.settings,
        encryption=service.encryption,
        merchants=MerchantDirectory(service.database, service.accounts),
        limiter=MerchantRateLimiter(service.database, service.settings),
        screening=service.fraud_screening,
    )


async def make_link(world: World, merchant_id: int | None = None, **terms: Any) -> PaymentLink:
    """Create a link for 1590.00 THB without a limit."""
    service = world.service
    merchants = MerchantDirectory(service.database, service.accounts)
    body = CreateLinkBody(**{"title": "Workshop", "currency": "THB", "amount": "1590.00"} | terms)
    created = await create_link(
        service.database,
        service.settings,
        await merchants.get(merchant_id or world.merchant_id),
        body,
        uuid4(),
        "test",
    )
    return created.stored.link


def order(
    link: PaymentLink, amount: str | None = None, previous: Payment | None = None, form: str = ""
) -> LinkOrder:
    return LinkOrder(
        link=link,
        form_id=form or uuid4().hex,
        entered_amount=amount,
        previous_payment=previous,
    )


async def post_link(api: Api, key: str | None = None, **changes: Any) -> Answer:
    """`POST /payment-links` for 1590.00 THB. A value of None omits the field."""
    body: dict[str, Any] = {"title": "Workshop", "currency": "THB", "amount": "1590.00"}
    body = {name: value for name, value in (body | changes).items() if value is not None}
    headers = api.bearer() | {"Idempotency-Key": key or str(uuid4())}
    return await api.send("POST", "/v1/payment-links", json=body, headers=headers)


def token_of(link: Answer) -> str:
    return link.json["url"].rpartition("/")[2]
