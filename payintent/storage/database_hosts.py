"""The hosts of a database URL, tried one by one: the driver has one timeout for all of them.

`name_hosts` writes them for operators, without the login.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

#: What is shown of a URL that may be read otherwise than it was meant.
NOT_READABLE = "not readable"

_KEPT_MAX = 4_096  # URLs of one process, which has up to three
_PORT = "5432"  # PostgreSQL's, where a URL names none
_PORT_MAX = 65_535
_NO_HOST = "localhost"  # where a URL names none the driver tries sockets' folders, and this
_SCHEMES = frozenset({"postgresql", "postgres"})
_HOST = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")
_FOLDER = re.compile(r"/[A-Za-z0-9._/-]*")  # of a socket
_NUMBER = re.compile(r"[0-9]{1,5}")
_DATABASE = re.compile(r"[\w.$+ -]*")
_SCHEMA = re.compile(r'[\w.$", -]*')


class DatabaseHosts:
    """One URL for each host; the host that answered last is tried first."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls
        self._first = 0

    def in_order(self) -> list[tuple[int, str]]:
        """List the hosts with their numbers, in the order to try them."""
        numbered = list(enumerate(self._urls))
        return numbered[self._first :] + numbered[: self._first]

    def mark_good(self, number: int) -> None:
        """Try this host first from now on."""
        self._first = number

    def mark_bad(self, number: int) -> None:
        """Where this host was tried first, try the next one first."""
        if self._first == number:
            self._first = (number + 1) % len(self._urls)


@lru_cache(_KEPT_MAX)
def database_hosts(url: str) -> DatabaseHosts:
    """Return the hosts of a URL, and their order as this process knows it."""
    return DatabaseHosts(_split(url))


def name_hosts(url: str) -> str:
    """Name a URL's hosts for an operator, such as `db.example.com:5432`, without the login."""
    return ", ".join(list_hosts(url)) or NOT_READABLE


def list_hosts(url: str) -> list[str]:
    """List a URL's hosts as the driver reads them; empty if that may not be what was meant.

    In a password an unquoted `/`, `?`, `#` or `@` ends the login: the driver takes the rest for a
    host, a port, a database or a setting, and so would whoever shows those.
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
    hosts, schema = _read_hosts(authority, query), query.get("search_path", "")
    may_be = _DATABASE.fullmatch(database) and _SCHEMA.fullmatch(schema)
    return hosts if may_be else []


def _read_hosts(authority: str, query: Mapping[str, str]) -> list[str]:
    """Name each host with its port; none at all where one of them cannot be a host."""
    hosts = (authority or query.get("host", "")).split(",")
    listed = "" if authority else query.get("port", "")  # beside hosts the driver ignores it
    ports = listed.split(",") if listed else [""]
    if len(ports) not in {1, len(hosts)} or not all(map(_may_be_port, ports)):
        return []
    if hosts == [""]:
        return [f"{_NO_HOST}:{ports[0] or _PORT}"]
    names = [
        _name(_unquoted_folder(host) if authority else host, ports[number % len(ports)])
        for number, host in enumerate(hosts)
    ]
    return names if all(names) else []


def _name(host: str, port: str) -> str:
    """Name one host, by the port that is listed for it, or its own; empty for what is none."""
    if _FOLDER.fullmatch(host):
        return host
    found = _HOST.fullmatch(host)
    if found is None or not _may_be_port(found[2] or ""):
        return ""
    return f"{found[1]}:{port or found[2] or _PORT}"


def _unquoted_folder(host: str) -> str:
    folder = unquote(host)
    return folder if folder.startswith("/") else host


def _may_be_port(port: str) -> bool:
    return not port or (_NUMBER.fullmatch(port) is not None and 0 < int(port) <= _PORT_MAX)


def _split(url: str) -> list[str]:
    """Make a URL for each host of `host:port,host:port`, or of `?host=a,b&port=1,2`."""
    parts = urlsplit(url)
    login, at, hosts = parts.netloc.rpartition("@")
    query = parse_qsl(parts.query, keep_blank_values=True)
    listed = dict(query)
    names = (hosts or listed.get("host", "")).split(",")
    ports = listed.get("port", "").split(",")
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
