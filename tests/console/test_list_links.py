"""List filters stay in the URL: in links to entries and back, in timelines and in forms."""

import html
import re

import pytest

from payintent.core import ids
from payintent.core.access import Role
from tests.console.operator_browser import Visitor, sign_in_as
from tests.support.operation_examples import Stage
from tests.support.world import Api, World

_TRAIL = re.compile(r'<p class="trail">.*</p>')
_LINKS = re.compile(r'href="([^"]+)"')


@pytest.fixture
async def viewer(operator: Api) -> Visitor:
    return await sign_in_as(operator, role=Role.VIEWER)


async def list_links(visitor: Visitor, path: str) -> list[str]:
    answer = await visitor.get(path)
    assert answer.status == 200, answer.body
    return [html.unescape(href) for href in _LINKS.findall(answer.body.decode())]


async def list_trail_links(visitor: Visitor, path: str) -> list[str]:
    """Return the links that lead back from a page."""
    match = _TRAIL.search((await visitor.get(path)).body.decode())
    assert match is not None, path
    return [html.unescape(href) for href in _LINKS.findall(match[0])]


@pytest.mark.parametrize(
    ("list_path", "entry"),
    [
        ("/payments?status=PENDING", r"/payments/pay_\w+"),
        ("/cases?status=ALL&order=newest", r"/cases/case_\w+"),
        ("/refunds?step=approval", r"/refunds/ref_\w+"),
        ("/merchants?name=Nimbus", r"/merchants/\d+"),
        ("/approvals?status=ALL", r"/approvals/(?:appr|ref)_\w+"),
        ("/webhooks/events?since=2020-01-01T00%3A00", r"/webhooks/events/[\w-]{36}"),
    ],
)
async def test_an_entry_links_back_to_the_filtered_list(
    viewer: Visitor, stage: Stage, list_path: str, entry: str
) -> None:
    [href, *_] = [link for link in await list_links(viewer, list_path) if re.match(entry, link)]
    assert list_path in await list_trail_links(viewer, href)


async def test_a_timeline_filter_keeps_the_link_back(viewer: Visitor, world: World) -> None:
    payment = ids.format_id(ids.PAYMENT, (await world.create()).id)
    page_path = f"/payments/{payment}?list=status%3DPENDING"
    [filtered_path] = [link for link in await list_links(viewer, page_path) if "of=payment" in link]
    filtered_path = filtered_path.partition("#")[0]
    assert await list_trail_links(viewer, filtered_path) == ["/payments?status=PENDING"]
    page = (await viewer.get(filtered_path)).body.decode()
    assert '<input type="hidden" name="list" value="status=PENDING">' in page
    assert '<input type="hidden" name="of" value="payment">' in page


async def test_a_list_parameter_cannot_link_to_a_foreign_page(
    viewer: Visitor, world: World
) -> None:
    payment = ids.format_id(ids.PAYMENT, (await world.create()).id)
    for text, expected in (
        ("https%3A%2F%2Fevil.example", "/payments"),
        ("%22%3E%3Cscript%3E%3Da", "/payments?%22%3E%3Cscript%3E=a"),
        ("a%3D1%23x", "/payments?a=1%23x"),
        ("x%3D1%26" * 50, "/payments"),
        ("x%3D" + "y" * 2_000, "/payments"),
    ):
        assert await list_trail_links(viewer, f"/payments/{payment}?list={text}") == [expected]


async def test_a_filter_form_keeps_the_order(viewer: Visitor, stage: Stage) -> None:
    for path in ("/cases", "/refunds", "/disputes", "/approvals"):
        for order in ("newest", "oldest"):
            status = "" if path == "/refunds" else "&status=ALL"
            answer = await viewer.get(f"{path}?order={order}{status}")
            assert answer.status == 200, path
            assert f'<option value="{order}" selected>' in answer.body.decode(), path


async def test_a_payment_shows_other_payments_for_its_order(viewer: Visitor, world: World) -> None:
    first, second, foreign_payment, different_order = [
        ids.format_id(ids.PAYMENT, (await world.create(metadata=f'{{"order_id":"{order}"}}')).id)
        for order in ("O-1", "O-1", "O-1", "O-2")
    ]
    merchant_id = (await world.add_merchant()).merchant.id
    await world.rows(
        "UPDATE payment SET merchant_id = $1 WHERE id = $2",
        merchant_id,
        ids.parse_id(ids.PAYMENT, foreign_payment),
    )
    page = (await viewer.get(f"/payments/{first}")).body.decode()
    related = page.partition("Other payments for this order")[2].partition('id="story"')[0]
    assert second in related
    assert [item for item in (first, foreign_payment, different_order) if item in related] == []
    assert f"/payments?merchant_id={world.merchant_id}&amp;order_id=O-1" in related
    unrelated_page = (await viewer.get(f"/payments/{different_order}")).body.decode()
    assert "Other payments for this order" not in unrelated_page
