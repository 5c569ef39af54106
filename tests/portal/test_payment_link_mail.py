"""Members mail payment links to buyers."""

import json
import re
from asyncio import gather
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from payintent.core.languages import LOCALES
from payintent.mail.smtp_client import SmtpClient
from payintent.members.model import MemberRight, MemberRole
from payintent.members.operations import InviteMember
from payintent.merchants.access_operations import IssueApiKey
from payintent.runtime.settings import Settings
from payintent.worker import open_mail_sender
from tests.portal.member_browser import Person, member, words
from tests.support.smtp_server import SmtpServer, smtp_server
from tests.support.world import Answer, Api

pytestmark = pytest.mark.full

PAGE = "/merchant/payment-links"
BUYER = "zora@buyers.test"
BURST = 20


@pytest.fixture
def server() -> Iterator[SmtpServer]:
    with smtp_server() as smtp:
        yield smtp


@pytest.fixture
def settings(settings: Settings, server: SmtpServer) -> Settings:
    mail = {"smtp_host": "127.0.0.1", "smtp_port": server.port, "smtp_security": "none"}
    return settings.model_copy(update={**mail, "smtp_from": "payments@pay.example.com"})


async def send_mails(api: Api) -> None:
    service = api.world.service
    await open_mail_sender(service, SmtpClient(service.settings)).step()


async def invited_member(
    api: Api, server: SmtpServer, role: MemberRole = MemberRole.FINANCE
) -> Person:
    """Return a member who signed in with an emailed invitation."""
    invitation = InviteMember(
        merchant_id=api.world.merchant_id, email=f"{role}@shop.test", role=role
    )
    await api.world.perform(invitation)
    await send_mails(api)
    [link] = re.findall(r"http://\S+/merchant/link/\S+", server.mails[-1].get_content())
    person = Person(api)
    assert (await person.follow_link(link)).status == 303
    server.received.clear()
    return person


async def create_link(person: Person, **changes: str) -> str:
    """Create a link. Return the path of its page."""
    terms = {"title": "Workshop", "currency": "THB", "amount": "1590.00"} | changes
    return (await person.post(PAGE, key=str(uuid4()), **terms)).headers["Location"]


async def mail_link(
    person: Person, path: str, email: str = BUYER, language: str = "en", key: str = ""
) -> Answer:
    key = key or str(uuid4())
    return await person.post(f"{path}/mail", email=email, language=language, key=key)


async def switch_to_test(api: Api, person: Person) -> None:
    await api.world.perform(IssueApiKey(merchant_id=api.world.merchant_id, test=True))
    assert (await person.post("/merchant/side", side="test", page=PAGE)).status == 303


async def count_mails(api: Api) -> int:
    return len(await api.world.rows("SELECT id FROM mail"))


async def audit_entries(api: Api) -> list[Any]:
    return await api.world.rows(
        "SELECT who, details::text AS details FROM audit WHERE action = 'payment-link.mail'"
    )


@pytest.mark.parametrize("role", MemberRole)
async def test_a_buyer_receives_the_link(api: Api, server: SmtpServer, role: MemberRole) -> None:
    person = await invited_member(api, server, role)
    path = await create_link(person, order_id="A-17")
    answer = await mail_link(person, path, f" {BUYER} ")
    assert (answer.status, answer.headers["Location"]) == (303, f"{path}?mailed=1")
    page = words(await person.get(answer.headers["Location"]))
    assert "The link is being sent." in page
    [sealed] = [row["sealed"] for row in await api.world.rows("SELECT sealed FROM mail")]
    assert BUYER.encode() not in sealed
    await send_mails(api)
    [mail] = server.mails
    [row] = await api.world.rows("SELECT token FROM payment_link")
    [merchant] = await api.world.rows("SELECT name FROM merchant WHERE livemode")
    text = mail.get_content().replace("\r\n", "\n")
    assert mail["To"] == BUYER
    assert merchant["name"] in mail["Subject"]
    assert f"{merchant['name']} has sent you a payment link." in text
    assert "Item: Workshop\nOrder number: A-17\nAmount: 1,590.00 THB\n" in text
    assert re.search(rf"^http://\S+/c/link/{row['token']}\?lang=en$", text, re.MULTILINE)
    assert "Test mode" not in text
    assert await count_mails(api) == 0
    [entry] = await audit_entries(api)
    assert entry["who"].startswith("merchant:")
    assert set(json.loads(entry["details"])) == {"payment_link_id", "language"}


@pytest.mark.parametrize("locale", LOCALES)
async def test_the_email_is_in_the_language_that_the_member_chooses(
    api: Api, server: SmtpServer, locale: str
) -> None:
    person = await invited_member(api, server)
    path = await create_link(person, amount="", title="Tips\nAmount: 1")
    assert (await mail_link(person, path, language=locale)).status == 303
    await send_mails(api)
    text = server.mails[-1].get_content()
    assert f"?lang={locale}" in text
    assert "THB" in text  # the currency of the amount that the buyer enters
    assert ("You enter the amount in THB" in text) is (locale == "en")
    assert not re.search(r"^Amount: 1", text, re.MULTILINE)


async def test_the_email_for_a_test_link_is_marked_as_a_test(api: Api, server: SmtpServer) -> None:
    person = await invited_member(api, server, MemberRole.DEVELOPER)
    await switch_to_test(api, person)
    path = await create_link(person)
    assert (await mail_link(person, path)).status == 303
    await send_mails(api)
    assert server.mails[-1].get_content().startswith("Test mode: you won’t be charged")


@pytest.mark.parametrize(
    ("email", "language", "text"),
    [
        ("", "en", "Enter an email address"),
        ("zora", "en", "Enter an email address"),
        ("a@buyers.test, b@buyers.test", "en", "Enter an email address"),
        ("a@buyers.test\r\nBcc: b@buyers.test", "en", "Enter an email address"),
        (f"{'a' * 400}@buyers.test", "en", "Enter an email address"),
        (BUYER, "fr", "Choose a language"),
        (BUYER, "", "Choose a language"),
    ],
)
async def test_an_invalid_form_is_explained_and_sends_no_email(
    api: Api, server: SmtpServer, email: str, language: str, text: str
) -> None:
    person = await invited_member(api, server)
    answer = await mail_link(person, await create_link(person), email, language)
    assert answer.status == 400
    assert text in words(answer)
    assert await count_mails(api) == 0
    assert await audit_entries(api) == []


async def test_a_closed_link_is_not_mailed(api: Api, server: SmtpServer) -> None:
    person = await invited_member(api, server)
    path = await create_link(person)
    assert "Send by email" in words(await person.get(path))
    await mail_link(person, path)
    assert (await person.post(f"{path}/deactivate")).status == 303
    assert "Send by email" not in words(await person.get(path))
    assert (await mail_link(person, path)).status == 409
    assert await count_mails(api) == 1
    await send_mails(api)  # the email that was stored before the link was deactivated
    assert server.received == []
    assert await count_mails(api) == 0


async def test_a_merchants_emails_are_rate_limited(api: Api, server: SmtpServer) -> None:
    person = await invited_member(api, server)
    path = await create_link(person)
    token = await person.token()
    statuses = [
        (
            await person.post(f"{path}/mail", token, email=BUYER, language="en", key=str(uuid4()))
        ).status
        for _ in range(BURST + 2)
    ]
    assert statuses == [303] * BURST + [429] * 2
    assert await count_mails(api) == BURST
    assert len(await audit_entries(api)) == BURST


async def test_a_resubmitted_form_sends_an_email_only_if_the_address_changed(
    api: Api, server: SmtpServer
) -> None:
    person = await invited_member(api, server)
    path, key = await create_link(person), str(uuid4())
    answers = await gather(*[mail_link(person, path, key=key) for _ in range(4)])
    assert {answer.headers["Location"] for answer in answers} == {f"{path}?mailed=1"}
    assert (await count_mails(api), len(await audit_entries(api))) == (1, 1)
    assert (await mail_link(person, path, "other@buyers.test", key=key)).status == 303
    assert (await count_mails(api), len(await audit_entries(api))) == (2, 2)
    assert (await person.post(f"{path}/mail", email=BUYER, language="en")).status == 400
    assert f'name="key" value="{key}"' not in (await person.get(path)).body.decode()


async def test_sending_email_needs_the_right_and_a_valid_form_token(
    api: Api, server: SmtpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = await invited_member(api, server)
    path = await create_link(person)
    assert (await person.post(f"{path}/mail", "0" * 64, email=BUYER, language="en")).status == 403
    token = await person.token()

    def lack_right(_role: MemberRole, right: MemberRight) -> bool:
        return right is not MemberRight.MANAGE_PAYMENT_LINKS

    monkeypatch.setattr("payintent.portal.visits.has_right", lack_right)
    assert (await person.post(f"{path}/mail", token, email=BUYER, language="en")).status == 403
    assert await count_mails(api) == 0


async def test_a_link_of_the_other_side_is_not_mailed(api: Api, server: SmtpServer) -> None:
    person = await invited_member(api, server, MemberRole.DEVELOPER)
    path = await create_link(person)
    await switch_to_test(api, person)
    assert (await mail_link(person, path)).status == 404
    assert await count_mails(api) == 0


class TestWithoutMailServer:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"smtp_host": ""})

    async def test_the_page_has_no_form(self, api: Api) -> None:
        person = await member(api)
        path = await create_link(person)
        assert "Send by email" not in words(await person.get(path))
        assert (await mail_link(person, path)).status == 404
        assert await count_mails(api) == 0
