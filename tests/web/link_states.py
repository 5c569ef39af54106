"""Create the states of a payment link's page."""

from typing import Any

from payintent.payment_links.create import deactivate_link
from tests.payment_links.link_setup import make_link, make_link_payments, order
from tests.support.world import World
from tests.web.gallery import Gallery
from tests.web.state_registry import Visit, state


@state
async def link(gallery: Gallery) -> Visit:
    """A product at a fixed price, from a shop with a logo, help and terms."""
    terms = {"description": "Half a day, with tea", "order_id": "T-1"}
    return await _visit(gallery.shop, texts=("continue", "language_change"), **terms)


@state
async def link_open_amount(gallery: Gallery) -> Visit:
    return await _visit(
        gallery.shop,
        texts=("link_amount_between",),
        title="Donation",
        amount=None,
        amount_min="20",
        amount_max="500",
    )


@state
async def link_invalid_amount(gallery: Gallery) -> Visit:
    return await _visit(
        gallery.plain,
        status=400,
        posts="form.methods button",
        entry="12 beans",
        texts=("link_amount_invalid",),
        title="Donation",
        amount=None,
    )


@state
async def link_test(gallery: Gallery) -> Visit:
    return await _visit(await gallery.test_side(), texts=("test", "continue"))


@state
async def link_inactive(gallery: Gallery) -> Visit:
    world = gallery.shop
    link = await make_link(world)
    await deactivate_link(world.service.database, world.merchant_id, link.id, "test")
    return Visit(path=f"/c/link/{link.token}", texts=("link_inactive", "link_closed_text"))


@state
async def link_used_up(gallery: Gallery) -> Visit:
    world = gallery.shop
    link = await make_link(world, max_uses=1)
    await make_link_payments(world).open_payment(order(link))
    return Visit(path=f"/c/link/{link.token}", texts=("link_used_up", "link_used_up_text"))


async def _visit(
    world: World,
    *,
    status: int = 200,
    posts: str = "",
    entry: str = "",
    texts: tuple[str, ...] = (),
    **terms: Any,
) -> Visit:
    link = await make_link(world, **terms)
    path = f"/c/link/{link.token}"
    return Visit(path=path, status=status, posts=posts, entry=entry, texts=texts)
