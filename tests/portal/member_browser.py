"""A member's browser with cookies, forms and a passkey."""

import html
import json
import re
from typing import Any
from urllib.parse import urlsplit

from payintent.members.model import MemberRole
from payintent.members.operations import InviteMember
from tests.portal.authenticator import SecurityKey
from tests.support.world import Answer, Api

_TOKEN = re.compile(r'name="form_token" value="([0-9a-f]{64})"')
SIGN_IN, LINK = "/merchant/sign-in", "/merchant/link"
ORIGIN = "http://pay.test"
SESSION = "payintent_merchant"


class Person:
    """A person who uses the portal."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.cookies: dict[str, str] = {}
        self.key = SecurityKey(ORIGIN)

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.send("GET", path, headers=headers)

    async def post(self, path: str, token: str | None = None, **fields: str) -> Answer:
        """Send a form. If no token is given, use the token of the person's pages."""
        if token is None:
            token = await self.token()
        return await self.send("POST", path, data=fields | {"form_token": token})

    async def token(self) -> str:
        return form_token(await self.get("/merchant/access"))

    async def follow_link(self, link: str) -> Answer:
        """Open a link and press the button on its page."""
        path = urlsplit(link).path
        return await self.post(path, form_token(await self.get(path)))

    async def add_passkey(self, **changes: Any) -> Answer:
        options = (await self.get("/merchant/passkeys/options")).json
        return await self.post(
            "/merchant/passkeys", credential=self.key.register(options, **changes)
        )

    async def sign_in(self, following: str = "", **changes: Any) -> Answer:
        token = form_token(await self.get(SIGN_IN))
        return await self.send_sign_in(
            self.key.sign_in(await self.challenge(), **changes), token, following
        )

    async def challenge(self) -> dict[str, Any]:
        return (await self.get(f"{SIGN_IN}/options")).json

    async def send_sign_in(self, credential: str, token: str, following: str = "") -> Answer:
        return await self.post(SIGN_IN, token, credential=credential, next=following)

    async def sign_out(self) -> Answer:
        return await self.post("/merchant/sign-out")

    @property
    def is_signed_in(self) -> bool:
        return SESSION in self.cookies

    async def send(self, method: str, path: str, **options: Any) -> Answer:
        """Send a request with the stored cookies, and update them from the response."""
        headers = options.pop("headers", {})
        if self.cookies:
            headers = headers | {"Cookie": "; ".join(f"{k}={v}" for k, v in self.cookies.items())}
        answer = await self.api.send(method, path, headers=headers, **options)
        for line in answer.headers.getall("Set-Cookie", []):
            name, _, value = line.partition(";")[0].partition("=")
            if "Max-Age=0" in line or "max-age=0" in line:
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = value
        return answer


def form_token(answer: Answer) -> str:
    match = _TOKEN.search(answer.body.decode())
    assert match is not None, answer.body[:2000]
    return match[1]


def words(answer: Answer) -> str:
    """Return the text of a page, without its tags."""
    body = answer.body.decode().partition("<body>")[2].replace("<wbr>", "")
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", body)))


async def invite(
    api: Api,
    email: str = "dee@shop.test",
    role: MemberRole = MemberRole.DEVELOPER,
    merchant_id: int | None = None,
) -> str:
    """Invite a person as the operator, and return the link."""
    merchant_id = merchant_id or api.world.merchant_id
    invitation = InviteMember(merchant_id=merchant_id, email=email, role=role)
    return (await api.world.perform(invitation)).link


async def member(
    api: Api,
    role: MemberRole = MemberRole.DEVELOPER,
    email: str | None = None,
    merchant_id: int | None = None,
) -> Person:
    """Return a signed-in person."""
    person = Person(api)
    link = await invite(api, email or f"{role}@shop.test", role, merchant_id)
    assert (await person.follow_link(link)).status == 303
    return person


def as_json(text: str) -> Any:
    return json.loads(text)
