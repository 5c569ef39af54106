"""The types of settings: their bounds, and checks that say in words what is wrong."""

import ssl
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from payintent.domain.api_key import MARK_CHARS
from payintent.domain.claim_roles import parse_claim_roles
from payintent.domain.ip_address import Network, parse_ip_network
from payintent.domain.mail import is_mail_address
from payintent.domain.web_origin import is_confidential, web_origin

#: Seconds that something may take.
Timeout = Annotated[float, Field(gt=0, le=300)]
#: Seconds between two steps of a loop.
Pause = Annotated[float, Field(gt=0, le=86_400)]
#: Seconds that something may be old, or may wait.
Age = Annotated[float, Field(ge=0, le=86_400)]
Milliseconds = Annotated[int, Field(ge=1, le=3_600_000)]
Size = Annotated[int, Field(ge=1_024, le=16 * 1024**2)]  # bytes
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Limit = Annotated[int, Field(ge=0, le=1_000_000)]
Batch = Annotated[int, Field(ge=1, le=100_000)]  # rows
Hours = Annotated[int, Field(ge=1, le=8_760)]
Days = Annotated[int, Field(ge=1, le=36_500)]
KeptDays = Annotated[int, Field(ge=0, le=36_500)]  # 0: for ever

_PORT_MAX = 65_535
PortNumber = Annotated[int, Field(ge=1, le=_PORT_MAX)]


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


def split_list(text: str) -> list[str]:
    """Split a list of a setting at its commas; blanks and empty items are dropped."""
    return [item.strip() for item in text.split(",") if item.strip()]


def _check_base(url: str) -> str:
    """Refuse a base address to which a path could not be added."""
    if url and web_origin(url) is None:
        raise ValueError("is no address such as https://pay.example.com/v1")
    if url.endswith("/") or "?" in url or "#" in url:
        raise ValueError("must have no slash at its end, no query and no fragment")
    return url


def _check_key_mark(mark: str) -> str:
    """Refuse a mark that the public part of a key cannot begin with."""
    if len(mark) != MARK_CHARS or not (mark.isascii() and mark.isalnum()):
        raise ValueError("must be two letters or digits, such as a1")
    return mark


def _check_origin(url: str) -> str:
    """Refuse what is no origin of TLS: the console's cookie is for such alone."""
    if url and (web_origin(url) != url or not url.startswith("https://")):
        raise ValueError("is no origin such as https://console.example.com")
    return url


def _check_issuer(url: str) -> str:
    """Refuse what is no issuer; it is compared as a text, so a slash at its end stays."""
    if url and (not is_confidential(url) or "?" in url or "#" in url):
        raise ValueError("is no https address such as https://login.example.com, without query")
    return url


def _check_mail_host(host: str) -> str:
    if host and web_origin(f"https://{host}") != f"https://{host.lower()}":
        raise ValueError("is no name of a host such as mail.example.com")
    return host


def _check_mail_address(address: str) -> str:
    if address and not is_mail_address(address):
        raise ValueError("is no address such as payments@example.com")
    return address


def _check_claim_roles(text: str) -> str:
    parse_claim_roles(text)
    return text


def _check_networks(text: str) -> str:
    for item in split_list(text):
        try:
            parse_ip_network(item)
        except ValueError as error:
            raise ValueError(f"has {item!r}, which is no address and no network") from error
    return text


def _check_origins(text: str) -> str:
    for number, item in enumerate(split_list(text), start=1):
        if web_origin(item) is None:  # it may hold a password, so it is not shown
            raise ValueError(
                f"has an entry, number {number}, that is no origin such as https://a.b"
            )
    return text


#: Networks that are not public, and that merchants' endpoints may be in; metadata never is.
_PRIVATE = [
    parse_ip_network(text)
    for text in (
        *("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"),
        *("::1/128", "fc00::/7"),
    )
]


def _check_private_networks(text: str) -> str:
    for item in split_list(_check_networks(text)):
        network = parse_ip_network(item)
        # Networks of another version have no common addresses.
        if not any(_is_within(network, private) for private in _PRIVATE):
            raise ValueError(
                f"has {item!r}, which is no private network: public ones need no setting, "
                "link-local and reserved ones are never called"
            )
    return text


def _is_within(network: Network, other: Network) -> bool:
    return (
        network.version == other.version
        and network.network_address in other
        and network.broadcast_address in other
    )


def _check_ports(text: str) -> str:
    for item in split_list(text):
        if not (item.isascii() and item.isdecimal() and 0 < int(item[:6]) <= _PORT_MAX):
            raise ValueError(f"has {item!r}, which is no port from 1 to {_PORT_MAX}")
    return text


@cache
def trusting(ca_file: str) -> ssl.SSLContext:
    """Make the context of TLS clients that trust the system's authorities and those of a file."""
    context = ssl.create_default_context()
    context.load_verify_locations(cafile=ca_file)
    return context


def _check_ca_file(path: str) -> str:
    try:
        if path:
            trusting(path)
    except ssl.SSLError as error:
        raise ValueError("names a file that holds no certificate in PEM form") from error
    except OSError as error:
        raise ValueError(f"names a file that cannot be read: {error.strerror}") from error
    return path


def _check_folder(path: str) -> str:
    if path and not path.startswith("/"):
        raise ValueError("is no whole path such as /var/lib/payintent/settlements")
    return path


Base = Annotated[str, AfterValidator(_check_base)]
Origin = Annotated[str, AfterValidator(_check_origin)]
KeyMark = Annotated[str, AfterValidator(_check_key_mark)]
CaFile = Annotated[str, AfterValidator(_check_ca_file)]
Folder = Annotated[str, AfterValidator(_check_folder)]
Issuer = Annotated[str, AfterValidator(_check_issuer)]
ClaimRoles = Annotated[str, AfterValidator(_check_claim_roles)]
MailHost = Annotated[str, AfterValidator(_check_mail_host)]
MailAddress = Annotated[str, AfterValidator(_check_mail_address)]
Networks = Annotated[str, AfterValidator(_check_networks)]
PrivateNetworks = Annotated[str, AfterValidator(_check_private_networks)]
PortNumbers = Annotated[str, AfterValidator(_check_ports)]
Origins = Annotated[str, AfterValidator(_check_origins)]
LogLevel = Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(_upper)]
