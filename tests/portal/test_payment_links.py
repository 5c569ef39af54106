"""Members create, view and deactivate payment links in the selected mode."""

import re
from uuid import uuid4

import pytest

from payintent.members.model import MemberRole
from payintent.merchants.access_operations import IssueApiKey
from tests.portal.member_browser import member, words
from tests.support.world import Answer, Api

PAGE = "/merchant/payment-links"


async def links(api: Api, key: str | None = None) -> list[dict[str, object]]:
    answer = await api.send("GET", "/v1/payment-links", headers=api.bearer(key))
    return answer.json["data"]


def link_path(answer: Answer) -> str:
    assert answer.status == 303
    return answer.headers["Location"]


@pytest.mark.parametrize("role", MemberRole)
async def test_a_member_can_create_a_link_and_sees_its_qr_code(api: Api, role: MemberRole) -> None:
    person = await member(api, role)
    terms = {"title": "Workshop", "currency": "THB", "amount": "1590.00", "max_uses": "2"}
    key = str(uuid4())
    created = await person.post(PAGE, key=key, last_day="2099-12-31", **terms)
    again = await person.post(PAGE, key=key, last_day="2099-12-31", **terms)
    assert link_path(created) == link_path(again)
    [link] = await links(api)
    assert (link["amount"], link["max_uses"]) == ("1590.00", 2)
    assert link["expires_at"] == "2100-01-01T00:00:00.000Z"
    page = await person.get(link_path(created))
    assert str(link["url"]) in words(page)
    assert 'src="data:image/svg+xml' in page.body.decode()
    assert "1,590.00 THB" in words(await person.get(PAGE))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"title": ""}, "title must have"),
        ({"amount": "1,590"}, "plain decimal"),
        ({"max_uses": "0"}, "number of uses"),
        ({"max_uses": "many"}, "number of uses"),
        ({"last_day": "31.12.2099"}, "YYYY-MM-DD"),
        ({"last_day": "9999-12-31"}, "YYYY-MM-DD"),
        ({"currency": "XXX"}, "not supported"),
        ({"return_url": "https://evil.test/"}, "origins"),
    ],
)
async def test_invalid_terms_are_explained_and_kept_in_the_form(
    api: Api, changes: dict[str, str], text: str
) -> None:
    person = await member(api)
    terms = {"title": "Workshop", "description": "On Saturday", "currency": "THB", "amount": "5"}
    answer = await person.post(PAGE, key=str(uuid4()), **(terms | changes))
    assert answer.status in {400, 422}
    assert text in words(answer)
    assert 'value="On Saturday"' in answer.body.decode()
    assert await links(api) == []


async def test_a_member_can_deactivate_a_link(api: Api) -> None:
    person = await member(api)
    created = await person.post(
        PAGE, key=str(uuid4()), title="Workshop", currency="THB", amount="5"
    )
    path = link_path(created)
    assert (await person.post(f"{path}/deactivate")).headers["Location"] == path
    page = words(await person.get(path))
    assert "INACTIVE" in page
    assert "Deactivate" not in page
    [row] = await api.world.rows("SELECT created_by, deactivated_by FROM payment_link")
    assert row["created_by"] == row["deactivated_by"]
    assert re.fullmatch(r"merchant:\d+:.+@.+", row["created_by"])


async def test_a_link_of_the_test_side_is_not_visible_on_the_live_side(api: Api) -> None:
    tester = await api.world.perform(IssueApiKey(merchant_id=api.world.merchant_id, test=True))
    person = await member(api)
    assert (await person.post("/merchant/side", side="test", page=PAGE)).status == 303
    created = await person.post(PAGE, key=str(uuid4()), title="Trial", currency="USD", amount="5")
    path = link_path(created)
    assert "Trial" in words(await person.get(PAGE))
    assert len(await links(api, tester.api_key)) == 1
    assert await links(api) == []
    assert (await person.post("/merchant/side", side="live", page=PAGE)).status == 303
    assert "Trial" not in words(await person.get(PAGE))
    assert (await person.get(path)).status == 404
