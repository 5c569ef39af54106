"""The hosts of a database URL, tried in turn because the driver has one timeout for all of them."""

import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

#: Shown instead of an ambiguous URL.
NOT_READABLE = "not readable"

_CACHE_MAX = 4_096  # a process has up to three URLs
_PORT = "5432"  # PostgreSQL's default
_PORT_MAX = 65_535
_DEFAULT_HOST = "localhost"  # without a host the driver tries socket directories, then this host
_SCHEMES = frozenset({"postgresql", "postgres"})
_HOST = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")
_FOLDER = re.compile(r"/[A-Za-z0-9._/-]*")  # of a socket
_NUMBER = re.compile(r"[0-9]{1,5}")
_DATABASE = re.compile(r"[\w.$+ -]*")
_SCHEMA = re.compile(r'[\w.$", -]*')


class DatabaseHosts:
    """A URL for each host; the host that answered last is tried first."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls
        self._first = 0

    def in_order(self) -> list[tuple[int, str]]:
        numbered = list(enumerate(self._urls))
        return numbered[self._first :] + numbered[: self._first]

    def mark_good(self, number: int) -> None:
        self._first = number

    def mark_bad(self, number: int) -> None:
        if self._first == number:
            self._first = (number + 1) % len(self._urls)


@lru_cache(_CACHE_MAX)
def database_hosts(url: str) -> DatabaseHosts:
    """Return the hosts of a URL; their order is shared by this process."""
    return DatabaseHosts(_split(url))


def name_hosts(url: str) -> str:
    """Format a URL's hosts without the login, for example `db.example.com:5432`."""
    return ", ".join(list_hosts(url)) or NOT_READABLE


def list_hosts(url: str) -> list[str]:
    """List a URL's hosts as the driver parses them; empty if the URL is ambiguous.

    An unquoted `/`, `?`, `#` or `@` in a password ends the login. The driver parses the rest as a
    host, port, database or setting, so displaying these would reveal a part of the password.
    """
    try:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    except ValueError:
        return []
    login, at, authority = parts.netloc.rpartition("@")
    if parts.scheme not in _SCHEMES or "#" in url or "@" in login or url.count("@") > len(at):
        return []
    if "service" in query:  # the address is in a file
        return []
    database = unquote(parts.path.removeprefix("/"))
    if not parts.path:
        database = query.get("dbname") or query.get("database", "")
    hosts, schema = _parse_hosts(authority, query), query.get("search_path", "")
    is_plausible = _DATABASE.fullmatch(database) and _SCHEMA.fullmatch(schema)
    return hosts if is_plausible else []


def _parse_hosts(authority: str, query: Mapping[str, str]) -> list[str]:
    """List each host with its port; empty if any of them is invalid."""
    hosts = (authority or query.get("host", "")).split(",")
    query_ports = "" if authority else query.get("port", "")  # ignored by the driver beside hosts
    ports = query_ports.split(",")
    if len(ports) not in {1, len(hosts)} or not all(map(_is_port_or_empty, ports)):
        return []
    if hosts == [""]:
        return [f"{_DEFAULT_HOST}:{ports[0] or _PORT}"]
    names = [
        _format_host(_unquoted_folder(host) if authority else host, ports[number % len(ports)])
        for number, host in enumerate(hosts)
    ]
    return names if all(names) else []


def _format_host(host: str, port: str) -> str:
    """Return a host with `port` or its own port; empty if it is invalid."""
    if _FOLDER.fullmatch(host):
        return host
    match = _HOST.fullmatch(host)
    if match is None or not _is_port_or_empty(match[2] or ""):
        return ""
    return f"{match[1]}:{port or match[2] or _PORT}"


def _unquoted_folder(host: str) -> str:
    folder = unquote(host)
    return folder if folder.startswith("/") else host


def _is_port_or_empty(port: str) -> bool:
    return not port or (_NUMBER.fullmatch(port) is not None and 0 < int(port) <= _PORT_MAX)


def _split(url: str) -> list[str]:
    """Build a URL for each host of `host:port,host:port`, or of `?host=a,b&port=1,2`."""
    parts = urlsplit(url)
    login, at, hosts = parts.netloc.rpartition("@")
    query = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(query)
    names = (hosts or options.get("host", "")).split(",")
    ports = options.get("port", "").split(",")
    if len(names) == 1 or len(ports) not in {1, len(names)}:
        return [url]
    urls: list[str] = []
    for number, name in enumerate(names):
        port = ports[number % len(ports)]
        rest = [(key, value) for key, value in query if key not in {"host", "port"}]
        rest += [("port", port)] if port else []
        rest += [] if hosts else [("host", name)]
        netloc = login + at + (name if hosts else "")
        urls.append(urlunsplit(parts._replace(netloc=netloc, query=urlencode(rest))))
    return urls
