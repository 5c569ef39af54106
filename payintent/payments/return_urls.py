"""The pages of the shop to which the buyer returns from the checkout."""

import re
from collections.abc import Set as AbstractSet

from payintent.core.addresses import parse_web_origin
from payintent.core.errors import BadRequestError
from payintent.core.texts import check_text

_CHARS_MAX = 2_048
#: Characters that every browser and gateway reads alike. They exclude the start of a fragment.
_CHARS = re.compile(r"[!$-;=?-\[\]_a-z~]+")


def check_return_url(name: str, url: str | None) -> None:
    """Raise `BAD_REQUEST` if a text is not a web URL, or has a user name or a fragment."""
    check_text(name, url, _CHARS_MAX)
    if url is not None and (not _CHARS.fullmatch(url) or parse_web_origin(url) is None):
        raise BadRequestError(
            f"{name} must be an absolute URL without a fragment,"
            " such as https://shop.example.com/thanks; percent-encode special characters"
        )


def require_return_origin(name: str, url: str | None, origins: AbstractSet[str]) -> None:
    """Raise `BAD_REQUEST` if a URL does not have one of the merchant's origins."""
    if url is not None and parse_web_origin(url) not in origins:
        raise BadRequestError(f"{name} must use one of the merchant's origins")
