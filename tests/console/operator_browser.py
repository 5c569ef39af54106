"""An operator's browser without scripts: the console's cookies, forms and links."""

import html
import re
from dataclasses import dataclass, field
from typing import Any

from payintent.core.access import Role
from tests.support.world import Answer, Api

_CSRF = re.compile(r'name="csrf" value="([^"]+)"')
_WHOLE = re.compile(r'<span class="whole">([^<]*)</span>')
_TAG = re.compile(r"<[^>]*>")


@dataclass
class Visitor:
    """A browser session in the console."""

    api: Api
    cookies: dict[str, str] = field(default_factory=dict)
    csrf: str = ""

    async def get(self, path: str, **headers: str) -> Answer:
        """Open a page, and store its CSRF token."""
        answer = await self._send("GET", path, headers=headers)
        match = _CSRF.search(answer.body.decode())
        self.csrf = match[1] if match else self.csrf
        return answer

    async def post(self, path: str, /, **fields: str) -> Answer:
        """Submit a form with the CSRF token of the last page."""
        return await self.send_form(path, {"csrf": self.csrf} | fields, Origin=self.api.base)

    async def send_form(self, path: str, fields: dict[str, str], **headers: str) -> Answer:
        """Submit a form with exactly these fields and headers."""
        return await self._send("POST", path, data=fields, headers=headers)

    async def sign_in(self, token: str, **fields: str) -> Answer:
        """Sign in; if it succeeds, open a page for its CSRF token."""
        answer = await self.post("/sign-in", token=token, **fields)
        if answer.status == 303:
            await self.get("/sessions")
        return answer

    async def _send(
        self, method: str, path: str, headers: dict[str, str], **options: Any
    ) -> Answer:
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        request_headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if cookie:
            request_headers["Cookie"] = cookie
        answer = await self.api.send(method, path, headers=request_headers, **options)
        for line in answer.headers.getall("Set-Cookie", []):
            name, _, value = line.partition(";")[0].partition("=")
            self.cookies[name] = value.strip('"')
            if "Max-Age=0" in line:
                del self.cookies[name]
        return answer


async def sign_in_as(api: Api, name: str = "ann", role: Role = Role.ADMIN) -> Visitor:
    """Issue an operator token, and sign in with it."""
    visitor = Visitor(api)
    answer = await visitor.sign_in(await api.world.operator_token(name, role))
    assert answer.status == 303, answer.body
    return visitor


def without_breaks(body: str) -> str:
    """Return a page without the markup for line breaks in words."""
    return _WHOLE.sub(r"\1", body.replace("<wbr>", ""))


def words(answer: Answer) -> str:
    """Return the text of a page, without its markup."""
    body = answer.body.decode().partition("<body")[2]
    return " ".join(html.unescape(_TAG.sub(" ", without_breaks(body))).split())
