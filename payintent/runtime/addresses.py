"""E-mail addresses with internationalised domains (IDNA 2008) and local parts (RFC 6531)."""

import re
import unicodedata
from typing import TYPE_CHECKING
from urllib.parse import quote

import idna

from payintent.core.addresses import is_mail_address

if TYPE_CHECKING:
    from yarl import URL


_LOCAL_BYTES_MAX = 64  # RFC 5321, section 4.5.3.1.1
#: RFC 6532's dot-atom: characters that RFC 5322 allows without quotes, and non-ASCII characters.
_ATOM = r"[\w!#$%&'*+/=?^`{|}~-]+"
_LOCAL = re.compile(rf"{_ATOM}(?:\.{_ATOM})*")


def to_mailbox(address: str) -> str | None:
    """Return an address with its domain in ASCII, for SMTP; None if it is invalid.

    The local part is unchanged; if it is not ASCII, the server must support SMTPUTF8.
    """
    local, _, domain = address.rpartition("@")
    ascii_domain = _to_ascii(domain)
    if ascii_domain is None:
        return None
    if not local.isascii():
        is_local = _LOCAL.fullmatch(local) and len(local.encode()) <= _LOCAL_BYTES_MAX
        return (
            f"{local}@{ascii_domain}" if is_local and is_mail_address(f"x@{ascii_domain}") else None
        )
    mailbox = f"{local}@{ascii_domain}"
    return mailbox if is_mail_address(mailbox) else None


def to_comparable(address: str) -> str:
    """Return a form that is equal for all spellings of an address, or of `@domain`."""
    local, _, domain = unicodedata.normalize("NFC", address).rpartition("@")
    return f"{local}@{_to_ascii(domain) or domain}".lower()


def _to_ascii(domain: str) -> str | None:
    if domain.isascii():
        return domain
    try:
        return idna.encode(domain, uts46=True).decode()
    except idna.IDNAError:
        return None


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
