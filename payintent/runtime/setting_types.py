"""Types of settings, with limits and validators."""

import ssl
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from payintent.core.access import MARK_CHARS, parse_claim_roles
from payintent.core.addresses import (
    Network,
    is_confidential,
    is_mail_address,
    parse_ip_network,
    parse_web_origin,
)

Timeout = Annotated[float, Field(gt=0, le=300)]  # seconds
Interval = Annotated[float, Field(gt=0, le=86_400)]  # seconds between two runs of a loop
Seconds = Annotated[float, Field(ge=0, le=86_400)]
Milliseconds = Annotated[int, Field(ge=1, le=3_600_000)]
Size = Annotated[int, Field(ge=1_024, le=16 * 1024**2)]  # bytes
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Limit = Annotated[int, Field(ge=0, le=1_000_000)]
Batch = Annotated[int, Field(ge=1, le=100_000)]  # rows
Hours = Annotated[int, Field(ge=1, le=8_760)]
Days = Annotated[int, Field(ge=1, le=36_500)]
RetentionDays = Annotated[int, Field(ge=0, le=36_500)]  # 0 disables deletion

_PORT_MAX = 65_535
PortNumber = Annotated[int, Field(ge=1, le=_PORT_MAX)]


def _to_upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


def split_list(text: str) -> list[str]:
    """Split a comma-separated list; blanks and empty items are removed."""
    return [item.strip() for item in text.split(",") if item.strip()]


def _check_base(url: str) -> str:
    """Reject URLs to which no path can be appended."""
    if url and parse_web_origin(url) is None:
        raise ValueError("must be a URL such as https://pay.example.com/v1")
    if url.endswith("/") or "?" in url or "#" in url:
        raise ValueError("must not have a trailing slash, a query or a fragment")
    return url


def _check_key_mark(mark: str) -> str:
    if len(mark) != MARK_CHARS or not (mark.isascii() and mark.isalnum()):
        raise ValueError("must be two letters or digits, such as a1")
    return mark


def _check_origin(url: str) -> str:
    """Require https, because browsers send the console's cookie only over TLS."""
    if url and (parse_web_origin(url) != url or not url.startswith("https://")):
        raise ValueError("must be an origin such as https://console.example.com")
    return url


def _check_issuer(url: str) -> str:
    """Reject an invalid issuer URL. Issuers are compared as text, so keep a trailing slash."""
    if url and (not is_confidential(url) or "?" in url or "#" in url):
        raise ValueError("must be an https URL without a query, such as https://login.example.com")
    return url


def _check_mail_host(host: str) -> str:
    if host and parse_web_origin(f"https://{host}") != f"https://{host.lower()}":
        raise ValueError("must be a host name such as mail.example.com")
    return host


def _check_mail_address(address: str) -> str:
    if address and not is_mail_address(address):
        raise ValueError("must be an address such as payments@example.com")
    return address


def _check_contact(contact: str) -> str:
    if contact and not is_mail_address(contact) and not is_confidential(contact):
        raise ValueError(
            "must be an email address, or an https URL such as https://example.com/support"
        )
    return contact


def _check_claim_roles(text: str) -> str:
    parse_claim_roles(text)
    return text


def _check_networks(text: str) -> str:
    for item in split_list(text):
        try:
            parse_ip_network(item)
        except ValueError as error:
            raise ValueError(f"contains {item!r}, which is not an address or a network") from error
    return text


def _check_origins(text: str) -> str:
    for number, item in enumerate(split_list(text), start=1):
        if parse_web_origin(item) is None:  # not quoted, because it may contain a password
            raise ValueError(
                f"contains an invalid entry (number {number}); use origins such as https://a.b"
            )
    return text


#: Private networks in which webhook endpoints can be allowed. Link-local addresses are excluded.
_PRIVATE_NETWORKS = [
    parse_ip_network(text)
    for text in (
        *("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"),
        *("::1/128", "fc00::/7"),
    )
]


def _check_private_networks(text: str) -> str:
    for item in split_list(_check_networks(text)):
        network = parse_ip_network(item)
        if not any(_is_subnet(network, private_network) for private_network in _PRIVATE_NETWORKS):
            raise ValueError(
                f"contains {item!r}, which is not a private network: public networks are always "
                "allowed, and link-local and reserved networks are never allowed"
            )
    return text


def _is_subnet(network: Network, outer_network: Network) -> bool:
    return (
        network.version == outer_network.version
        and network.network_address in outer_network
        and network.broadcast_address in outer_network
    )


def _check_ports(text: str) -> str:
    for item in split_list(text):
        if not (item.isascii() and item.isdecimal() and 0 < int(item[:6]) <= _PORT_MAX):
            raise ValueError(f"contains {item!r}, which is not a port from 1 to {_PORT_MAX}")
    return text


@cache
def make_tls_context(ca_file: str) -> ssl.SSLContext:
    """Create a TLS client context that trusts the system's authorities and those in a file."""
    context = ssl.create_default_context()
    context.load_verify_locations(cafile=ca_file)
    return context


def _check_ca_file(path: str) -> str:
    try:
        if path:
            make_tls_context(path)
    except ssl.SSLError as error:
        raise ValueError("must be a file with a certificate in PEM format") from error
    except OSError as error:
        raise ValueError(f"refers to a file that cannot be read: {error.strerror}") from error
    return path


def _check_folder(path: str) -> str:
    if path and not path.startswith("/"):
        raise ValueError("must be an absolute path such as /var/lib/payintent/settlements")
    return path


BaseUrl = Annotated[str, AfterValidator(_check_base)]
Origin = Annotated[str, AfterValidator(_check_origin)]
KeyMark = Annotated[str, AfterValidator(_check_key_mark)]
CaFile = Annotated[str, AfterValidator(_check_ca_file)]
Folder = Annotated[str, AfterValidator(_check_folder)]
Issuer = Annotated[str, AfterValidator(_check_issuer)]
ClaimRoles = Annotated[str, AfterValidator(_check_claim_roles)]
MailHost = Annotated[str, AfterValidator(_check_mail_host)]
MailAddress = Annotated[str, AfterValidator(_check_mail_address)]
Contact = Annotated[str, AfterValidator(_check_contact)]
Networks = Annotated[str, AfterValidator(_check_networks)]
PrivateNetworks = Annotated[str, AfterValidator(_check_private_networks)]
PortNumbers = Annotated[str, AfterValidator(_check_ports)]
Origins = Annotated[str, AfterValidator(_check_origins)]
LogLevel = Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(_to_upper)]
