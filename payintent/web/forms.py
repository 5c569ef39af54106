"""Forms of pages: read within bounds, and known to come from a page of ours."""

import hmac
from collections.abc import Mapping
from urllib.parse import parse_qsl

from starlette.requests import Request

from payintent.api.request_body import read_raw
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.encryption import Encryption

#: The field of a form that holds its token.
FORM_TOKEN = "form_token"  # noqa: S105 - a field's name
_TOO_OLD = "this form is too old: open the page again and send it once more"
_BYTES_MAX = 16 * 1024
_FIELDS_MAX = 20
#: What browsers say of a request that a page of this origin, or a person, has caused.
_OURS = frozenset({"same-origin", "none"})
#: What browsers send for the origin of a page that gives no referrer, as those with links do.
_UNTOLD = "null"


async def read_form_fields(request: Request) -> dict[str, str]:
    """Read the fields of a form that are not empty (`BAD_REQUEST` where it cannot be read)."""
    raw = await read_raw(request, _BYTES_MAX)
    try:
        fields = parse_qsl(raw.decode(), max_num_fields=_FIELDS_MAX)
    except ValueError as error:
        raise RefusedError(ErrorCode.BAD_REQUEST, "the form cannot be read") from error
    return {name: value.strip() for name, value in fields if value.strip()}


def make_form_token(encryption: Encryption, holder: str) -> str:
    """Make the token of a holder's forms; `holder` names a session and is no secret by itself."""
    return encryption.digest(f"form token:{holder}").hex()


def check_form_token(form: Mapping[str, str], encryption: Encryption, holder: str) -> None:
    """Refuse (`FORBIDDEN`) a form that has another's token."""
    expected = make_form_token(encryption, holder).encode()
    given = form.get(FORM_TOKEN, "").encode(errors="replace")
    if not hmac.compare_digest(given, expected):
        raise RefusedError(ErrorCode.FORBIDDEN, _TOO_OLD)


def check_sender(request: Request, origin: str | None) -> None:
    """Refuse (`FORBIDDEN`) a form that a page of another origin than ours has sent."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origins = set(request.headers.getlist("origin"))
    if site not in _OURS or not origins <= {origin, _UNTOLD}:
        raise RefusedError(ErrorCode.FORBIDDEN, _TOO_OLD)
