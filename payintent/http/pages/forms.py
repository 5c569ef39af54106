"""HTML forms, sign-in cookies, and protection against cross-site request forgery."""

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response

from payintent.core.errors import BadRequestError, ErrorCode, RefusedError
from payintent.http.bodies import read_body
from payintent.runtime.encryption import Encryption

Context = TypeVar("Context")
Session = TypeVar("Session")
#: The form field that contains the CSRF token.
FORM_TOKEN = "form_token"  # noqa: S105 - a field's name
_EXPIRED_MESSAGE = "the form has expired; reload the page and try again"
_BYTES_MAX = 16 * 1024
_FIELDS_MAX = 20
#: `Sec-Fetch-Site` values of requests that come from our pages or directly from the user.
_TRUSTED_SITES = frozenset({"same-origin", "none"})
#: `Origin` of requests from pages with the `no-referrer` policy, such as the sign-in link page.
_NULL_ORIGIN = "null"


@dataclass(frozen=True, slots=True)
class SignedInVisit(Generic[Context, Session]):
    """A signed-in user's request, with the pages' context."""

    request: Request
    context: Context
    session: Session
    form: Mapping[str, str]  # empty unless the method is POST


async def read_form_fields(request: Request) -> dict[str, str]:
    """Read the form's non-empty fields. Raises `BAD_REQUEST` if the form is malformed."""
    body = await read_body(request, _BYTES_MAX)
    try:
        fields = parse_qsl(body.decode(), max_num_fields=_FIELDS_MAX)
    except ValueError as error:
        raise BadRequestError("the form is malformed") from error
    return {name: value.strip() for name, value in fields if value.strip()}


def make_form_token(encryption: Encryption, session_name: str) -> str:
    """Create the CSRF token for a session. `session_name` is not secret."""
    return encryption.digest(f"form token:{session_name}").hex()


def has_form_token(form: Mapping[str, str], encryption: Encryption, session_name: str) -> bool:
    """Return whether the form contains the session's CSRF token."""
    expected_token = make_form_token(encryption, session_name).encode()
    token = form.get(FORM_TOKEN, "").encode(errors="replace")
    return hmac.compare_digest(token, expected_token)


def check_form_token(form: Mapping[str, str], encryption: Encryption, *session_names: str) -> None:
    """Raise `FORBIDDEN` unless the form contains the CSRF token of one of the sessions."""
    if not any(has_form_token(form, encryption, name) for name in session_names):
        raise RefusedError(ErrorCode.FORBIDDEN, _EXPIRED_MESSAGE)


def check_request_origin(request: Request, origin: str | None) -> None:
    """Raise `FORBIDDEN` if the form was submitted from a page of a different origin."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origins = set(request.headers.getlist("origin"))
    if site not in _TRUSTED_SITES or not origins <= {origin, _NULL_ORIGIN}:
        raise RefusedError(ErrorCode.FORBIDDEN, _EXPIRED_MESSAGE)


_HOST_PREFIX = "__Host-"  # browsers accept this prefix only over HTTPS and from the host itself
_VALUE_CHARS_MAX = 4_096  # the browsers' limit


def read_cookie(request: Request, name: str, chars_max: int = _VALUE_CHARS_MAX) -> str | None:
    """Return a cookie's value, or None if it is missing, longer than `chars_max` or escaped.

    Our values never need escapes. The standard library's parser is not used, because it decodes
    escapes in quadratic time before Python 3.11.10 and 3.12.6 (CVE-2024-7592).
    """
    value = None
    for header in request.headers.getlist("cookie"):
        for pair in header.split(";"):
            key, equals, text = pair.partition("=")
            if equals and key.strip() == name:
                value = text.strip()  # the last of several cookies wins, as in Starlette
    if value is None or len(value) > chars_max or "\\" in value:
        return None
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value


def make_token() -> str:
    """Create a random token with 256 bits of entropy."""
    return secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True)
class SignInCookie:
    """The sign-in cookie. Over HTTPS, its name has the prefix `__Host-`."""

    base_name: str
    is_secure: bool
    max_age_s: int
    same_site: Literal["strict", "lax"] = "strict"

    @property
    def name(self) -> str:
        return f"{_HOST_PREFIX}{self.base_name}" if self.is_secure else self.base_name

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
