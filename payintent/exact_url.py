"""URLs that are called as they were given: HTTP clients would decode and encode them anew."""

from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from yarl import URL

#: Printable ASCII, which may stand in the first line of a request; `quote` adds letters and digits.
_AS_GIVEN = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


def exact_url(text: str) -> "URL":
    """Return a URL whose path and query the client sends byte for byte (`ValueError`).

    Only what cannot stand in the first line of a request (spaces, control characters, and anything
    beyond ASCII) is encoded. A fragment is never sent.
    """
    from yarl import URL  # imported when used: most commands call nobody

    scheme, _, rest = text.partition("#")[0].partition("://")
    authority = rest.partition("/")[0].partition("?")[0]
    if not scheme or not authority:
        raise ValueError("the address is no absolute URL")
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
    """Percent-encode the characters that cannot stand in the first line of a request."""
    return quote(text, safe=_AS_GIVEN)
