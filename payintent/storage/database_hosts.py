"""The hosts of a database URL, tried one by one: the driver has one timeout for all of them."""

from functools import lru_cache
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

_KEPT_MAX = 4_096  # URLs of one process: each cell has up to three, and there are 1,024 cells
_PORT = "5432"  # PostgreSQL's, where a URL names none


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
    """Name a URL's hosts for a person, such as `db.example.com:5432`: no login, no database."""
    return ", ".join(map(_name, _split(url)))


def _name(url: str) -> str:
    """Name the host of a URL that has one; a folder for one that is a socket."""
    parts = urlsplit(url)
    listed = dict(parse_qsl(parts.query))
    host = parts.netloc.rpartition("@")[2] or listed.get("host", "localhost")
    has_port = host.rpartition(":")[2].isdecimal() or host.startswith("/")
    return host if has_port else f"{host}:{listed.get('port', _PORT)}"


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
