"""Cookies that sign people in: no script reads them, and no other site's page sends them."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

_HOST_ONLY = "__Host-"  # browsers take such a name over https alone, and from no other host
_VALUE_CHARS_MAX = 4_096  # browsers store no longer cookie


def read_cookie(request: Request, name: str, chars_max: int = _VALUE_CHARS_MAX) -> str | None:
    """Return the value of one cookie; None if it is absent, longer than `chars_max` or escaped.

    We never set a value that needs escapes. Python's own parser decodes them in quadratic time
    before 3.11.10 and 3.12.6 (CVE-2024-7592), in every cookie that a request carries.
    """
    value = None
    for header in request.headers.getlist("cookie"):
        for pair in header.split(";"):
            key, equals, text = pair.partition("=")
            if equals and key.strip() == name:
                value = text.strip()  # the last of several, as frameworks read them
    if value is None or len(value) > chars_max or "\\" in value:
        return None
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value


@dataclass(frozen=True, slots=True)
class SignInCookie:
    """A cookie of one purpose; over https its name begins with `__Host-`."""

    base_name: str
    is_secure: bool
    max_age_s: int

    @property
    def name(self) -> str:
        """Return the name that the browser keeps it by."""
        return f"{_HOST_ONLY}{self.base_name}" if self.is_secure else self.base_name

    def read(self, request: Request) -> str | None:
        """Return its value, or None where the browser sent none."""
        return read_cookie(request, self.name) or None

    def set(self, response: Response, value: str) -> None:
        """Let the browser keep a value."""
        response.set_cookie(
            self.name,
            value,
            max_age=self.max_age_s,
            path="/",
            secure=self.is_secure,
            httponly=True,
            samesite="strict",
        )

    def clear(self, response: Response) -> None:
        """Let the browser forget it."""
        response.delete_cookie(
            self.name, path="/", secure=self.is_secure, httponly=True, samesite="strict"
        )
