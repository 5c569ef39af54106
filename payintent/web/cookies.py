"""Cookies that sign people in: no script reads them, and no other site's page sends them."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

_HOST_ONLY = "__Host-"  # browsers take such a name over https alone, and from no other host


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
        return request.cookies.get(self.name) or None

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
