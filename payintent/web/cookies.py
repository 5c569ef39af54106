"""Sign-in cookies: not readable by scripts, and not sent with cross-site requests."""

import secrets
from dataclasses import dataclass
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

_HOST_ONLY = "__Host-"  # browsers accept this prefix only over https and from the host itself
_VALUE_CHARS_MAX = 4_096  # the limit of browsers


def read_cookie(request: Request, name: str, chars_max: int = _VALUE_CHARS_MAX) -> str | None:
    """Return the value of a cookie; None if it is missing, longer than `chars_max` or escaped.

    Our values never need escapes. Before Python 3.11.10 and 3.12.6, the parser of the standard
    library decodes them in quadratic time, in all cookies of a request (CVE-2024-7592).
    """
    value = None
    for header in request.headers.getlist("cookie"):
        for pair in header.split(";"):
            key, equals, text = pair.partition("=")
            if equals and key.strip() == name:
                value = text.strip()  # the last of several, as in Starlette
    if value is None or len(value) > chars_max or "\\" in value:
        return None
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value


def make_token() -> str:
    """Return 256 random bits as text."""
    return secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True)
class SignInCookie:
    """A cookie for signing in; over https its name has the prefix `__Host-`."""

    base_name: str
    is_secure: bool
    max_age_s: int
    same_site: Literal["strict", "lax"] = "strict"

    @property
    def name(self) -> str:
        return f"{_HOST_ONLY}{self.base_name}" if self.is_secure else self.base_name

    def read(self, request: Request) -> str | None:
        return read_cookie(request, self.name) or None

    def set(self, response: Response, value: str) -> None:
        response.set_cookie(
            self.name,
            value,
            max_age=self.max_age_s,
            path="/",
            secure=self.is_secure,
            httponly=True,
            samesite=self.same_site,
        )

    def clear(self, response: Response) -> None:
        response.delete_cookie(
            self.name, path="/", secure=self.is_secure, httponly=True, samesite=self.same_site
        )
