"""URLs that are sent unchanged, because HTTP clients would decode and encode them again."""

from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from yarl import URL

#: Printable ASCII is allowed in a request line; `quote` adds letters and digits.
_UNCHANGED = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


def exact_url(text: str) -> "URL":
    """Return a URL whose path and query the client sends byte for byte (`ValueError`).

    Only characters that are invalid in a request line are encoded: spaces, control characters and
    non-ASCII characters. The fragment is removed.
    """
    from yarl import URL  # imported when used: most commands send no request

    scheme, _, rest = text.partition("#")[0].partition("://")
    authority = rest.partition("/")[0].partition("?")[0]
    if not scheme or not authority:
        raise ValueError("the address is not an absolute URL")
    origin, target = URL(f"{scheme}://{authority}/"), rest.removeprefix(authority)
    if not origin.raw_host:
        raise ValueError("the address has no host")
    return URL.build(
        scheme=origin.scheme,
        authority=origin.raw_authority,
        path=encode_unsendable(target if target.startswith("/") else "/" + target),
        encoded=True,
    )


def encode_unsendable(text: str) -> str:
    """Percent-encode the characters that are invalid in a request line."""
    return quote(text, safe=_UNCHANGED)
