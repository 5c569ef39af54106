"""Parse the hosts of a database URL, and explain connection errors without revealing secrets.

Hosts are tried separately, because the driver has a single timeout for all hosts of a URL.
"""

import os
import re
import socket
import ssl
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import asyncpg

from payintent.core.errors import DatabaseRefusedError, StorageUnavailableError

#: Displayed instead of an ambiguous URL.
NOT_READABLE = "not readable"

_CACHE_MAX = 4_096  # a process has up to three URLs
_PORT = "5432"  # PostgreSQL's default
_PORT_MAX = 65_535
_DEFAULT_HOST = "localhost"  # the driver's fallback after socket directories
_SCHEMES = frozenset({"postgresql", "postgres"})
_HOST = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")
_FOLDER = re.compile(r"/[A-Za-z0-9._/-]*")  # a socket directory
_NUMBER = re.compile(r"[0-9]{1,5}")
_DATABASE = re.compile(r"[\w.$+ -]*")
_SCHEMA = re.compile(r'[\w.$", -]*')


class DatabaseHosts:
    """One URL per host. The host that last accepted a connection is tried first."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls
        self._first = 0

    def list_in_order(self) -> list[tuple[int, str]]:
        numbered_urls = list(enumerate(self._urls))
        return numbered_urls[self._first :] + numbered_urls[: self._first]

    def mark_reachable(self, number: int) -> None:
        self._first = number

    def mark_unreachable(self, number: int) -> None:
        if self._first == number:
            self._first = (number + 1) % len(self._urls)


@lru_cache(_CACHE_MAX)
def get_database_hosts(url: str) -> DatabaseHosts:
    """Return the hosts of a URL. Their order is shared by the whole process."""
    return DatabaseHosts(_split(url))


def format_hosts(url: str) -> str:
    """Format a URL's hosts without credentials, for example `db.example.com:5432`."""
    return ", ".join(list_hosts(url)) or NOT_READABLE


def list_hosts(url: str) -> list[str]:
    """List a URL's hosts as the driver parses them; empty if the URL is ambiguous.

    An unescaped `/`, `?`, `#` or `@` in a password ends the credentials. The driver then parses the
    rest of the password as a host, port, database or setting, so it must not be displayed.
    """
    try:
        split_url = urlsplit(url)
        query = dict(parse_qsl(split_url.query, strict_parsing=True)) if split_url.query else {}
    except ValueError:
        return []
    credentials, separator, authority = split_url.netloc.rpartition("@")
    if (
        split_url.scheme not in _SCHEMES
        or "#" in url
        or "@" in credentials
        or url.count("@") > len(separator)
    ):
        return []
    if "service" in query:  # the address is in a file
        return []
    database = unquote(split_url.path.removeprefix("/"))
    if not split_url.path:
        database = query.get("dbname") or query.get("database", "")
    hosts, schema = _parse_hosts(authority, query), query.get("search_path", "")
    is_plausible = _DATABASE.fullmatch(database) and _SCHEMA.fullmatch(schema)
    return hosts if is_plausible else []


def _parse_hosts(authority: str, query: Mapping[str, str]) -> list[str]:
    """List the hosts with their ports; empty if any of them is invalid."""
    hosts = (authority or query.get("host", "")).split(",")
    query_ports = "" if authority else query.get("port", "")  # ignored if the URL names hosts
    ports = query_ports.split(",")
    if len(ports) not in {1, len(hosts)} or not all(map(_is_port_or_empty, ports)):
        return []
    if hosts == [""]:
        return [f"{_DEFAULT_HOST}:{ports[0] or _PORT}"]
    names = [
        _format_host(_unquote_folder(host) if authority else host, ports[number % len(ports)])
        for number, host in enumerate(hosts)
    ]
    return names if all(names) else []


def _format_host(host: str, port: str) -> str:
    """Format a host with `port`, its own port or the default; empty if the host is invalid."""
    if _FOLDER.fullmatch(host):
        return host
    match = _HOST.fullmatch(host)
    if match is None or not _is_port_or_empty(match[2] or ""):
        return ""
    return f"{match[1]}:{port or match[2] or _PORT}"


def _unquote_folder(host: str) -> str:
    folder = unquote(host)
    return folder if folder.startswith("/") else host


def _is_port_or_empty(port: str) -> bool:
    return not port or (_NUMBER.fullmatch(port) is not None and 0 < int(port) <= _PORT_MAX)


def _split(url: str) -> list[str]:
    """Build a URL for each host in `host:port,host:port` or in `?host=a,b&port=1,2`."""
    split_url = urlsplit(url)
    credentials, separator, hosts = split_url.netloc.rpartition("@")
    query = parse_qsl(split_url.query, keep_blank_values=True)
    options = dict(query)
    names = (hosts or options.get("host", "")).split(",")
    ports = options.get("port", "").split(",")
    if len(names) == 1 or len(ports) not in {1, len(names)}:
        return [url]
    urls: list[str] = []
    for number, name in enumerate(names):
        port = ports[number % len(ports)]
        remaining_query = [(key, value) for key, value in query if key not in {"host", "port"}]
        remaining_query += [("port", port)] if port else []
        remaining_query += [] if hosts else [("host", name)]
        netloc = credentials + separator + (name if hosts else "")
        urls.append(urlunsplit(split_url._replace(netloc=netloc, query=urlencode(remaining_query))))
    return urls


#: Errors that a retry cannot fix: wrong role, password or database name, or missing privileges.
_FINAL: tuple[type[BaseException], ...] = (
    asyncpg.InvalidAuthorizationSpecificationError,  # no such role, or no match in pg_hba.conf
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
)
#: PgBouncer uses the same code for all errors. Errors whose messages contain these strings are
#: final.
_FINAL_AT_POOLER = re.compile(
    r"no such (?:database|user)|unsupported startup parameter|password authentication failed"
    r"|SASL authentication failed"
)
#: Prefixes of the driver's URL error messages that do not contain secrets.
_SAFE_URL_MESSAGES = ("root certificate file ", "`ssl", "direct TLS requires ")
_OUTAGES: dict[type[BaseException], str] = {
    asyncpg.TargetServerAttributeNotMatched: "it is a standby or read-only",
    TimeoutError: "it did not respond in time",
    socket.gaierror: "its name cannot be resolved",
    FileNotFoundError: "no such file: the socket, or a certificate in the URL",
}
_HOST_NAME = re.compile(r"""host(?: name)? (?:"[^"]*"|'[^']*')""")
#: Characters that suggest a misparsed URL, in which part of the password is mistaken for a name.
_SUSPICIOUS = frozenset("@:/?#")
_NO_DATABASE = "no such database: "
_UNREADABLE = "(not readable)"
_QUOTED_HOST = re.compile(r"'[^']*'")
_NO_TLS = "rejected SSL upgrade"


class RefusedConnectionError(ConnectionError):
    """The server refuses the connection. A retry cannot help until the configuration changes."""


def make_connection_error(error: BaseException) -> ConnectionError:
    """Return an error that is safe to display. A final error is a `RefusedConnectionError`.

    The driver's own message may contain the address and the password.
    """
    reason = _describe_refusal(error)
    if reason is not None:
        is_rejected = isinstance(error, asyncpg.PostgresError)  # by the server, not by us
        outcome = "refuses the connection" if is_rejected else "cannot be reached"
        return RefusedConnectionError(f"the database {outcome}: {reason}")
    return ConnectionError(f"the database cannot be reached: {_describe_outage(error)}")


def make_storage_error(error: BaseException) -> StorageUnavailableError:
    """Translate a connection error. A `RefusedConnectionError` becomes a `DatabaseRefusedError`."""
    is_final = isinstance(error, RefusedConnectionError)
    kind = DatabaseRefusedError if is_final else StorageUnavailableError
    return kind(str(error) or type(error).__name__)


def _describe_refusal(error: BaseException) -> str | None:
    """Return the reason if the error is final; None if a retry may help."""
    if isinstance(error, _FINAL):
        return _format_server_message(error)
    if isinstance(error, asyncpg.ProtocolViolationError) and _FINAL_AT_POOLER.search(str(error)):
        return _format_server_message(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = _QUOTED_HOST.sub("this host", error.verify_message)
        return f"its certificate was rejected: {reason}"
    if isinstance(error, ConnectionError) and _NO_TLS in str(error):
        return "it does not support TLS, which sslmode requires"
    # The driver raises ValueError for an invalid URL, and OverflowError if its port is too large.
    if isinstance(error, ValueError | OverflowError):
        is_safe = str(error).startswith(_SAFE_URL_MESSAGES)
        return str(error) if is_safe else "its URL cannot be read"
    return None


def _describe_outage(error: BaseException) -> str:
    """Explain why the database is unreachable, without its address."""
    if isinstance(error, asyncpg.PostgresError):
        return _format_server_message(error)
    for kind, text in _OUTAGES.items():
        if isinstance(error, kind):
            return text
    if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno).lower()
    return type(error).__name__


def _format_server_message(error: BaseException) -> str:
    """Return the first line of the server's message, without the host that it quotes."""
    first_line = (str(error).splitlines() or [type(error).__name__])[0]
    return _hide_suspicious_names(_HOST_NAME.sub("this host", first_line))


def _hide_suspicious_names(message: str) -> str:
    """Hide names with suspicious characters, because they may be part of the password."""
    before, separator, database = message.partition(_NO_DATABASE)
    parts = before.split('"')
    for index in range(1, len(parts) - 1, 2):  # between quotes
        if _SUSPICIOUS & set(parts[index]):
            parts[index] = _UNREADABLE
    safe = '"'.join(parts).replace(f'"{_UNREADABLE}"', _UNREADABLE)
    return safe + separator + (_UNREADABLE if _SUSPICIOUS & set(database) else database)
