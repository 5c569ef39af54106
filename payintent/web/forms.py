"""Reading of HTML forms, and protection against cross-site requests."""

import hmac
from collections.abc import Mapping
from urllib.parse import parse_qsl

from starlette.requests import Request

from payintent.api.request_body import read_raw
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.encryption import Encryption

#: The field of a form that holds its token.
FORM_TOKEN = "form_token"  # noqa: S105 - a field's name
_EXPIRED = "this form has expired: reload the page and try again"
_BYTES_MAX = 16 * 1024
_FIELDS_MAX = 20
#: `Sec-Fetch-Site` of requests from a page of this origin or from the user.
_OWN_SITES = frozenset({"same-origin", "none"})
#: `Origin` of requests from a page with the policy `no-referrer`, such as the sign-in link page.
_NULL_ORIGIN = "null"


async def read_form_fields(request: Request) -> dict[str, str]:
    """Read the non-empty fields of a form (`BAD_REQUEST`)."""
    raw = await read_raw(request, _BYTES_MAX)
    try:
        fields = parse_qsl(raw.decode(), max_num_fields=_FIELDS_MAX)
    except ValueError as error:
        raise RefusedError(ErrorCode.BAD_REQUEST, "the form cannot be read") from error
    return {name: value.strip() for name, value in fields if value.strip()}


def make_form_token(encryption: Encryption, holder: str) -> str:
    """Make the token of a session's forms; `holder` identifies the session and is not secret."""
    return encryption.digest(f"form token:{holder}").hex()


def check_form_token(form: Mapping[str, str], encryption: Encryption, holder: str) -> None:
    """Raise `FORBIDDEN` if the form does not have the holder's token."""
    expected = make_form_token(encryption, holder).encode()
    token = form.get(FORM_TOKEN, "").encode(errors="replace")
    if not hmac.compare_digest(token, expected):
        raise RefusedError(ErrorCode.FORBIDDEN, _EXPIRED)


def check_sender(request: Request, origin: str | None) -> None:
    """Raise `FORBIDDEN` if a page of a foreign origin has sent the form."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origins = set(request.headers.getlist("origin"))
    if site not in _OWN_SITES or not origins <= {origin, _NULL_ORIGIN}:
        raise RefusedError(ErrorCode.FORBIDDEN, _EXPIRED)
