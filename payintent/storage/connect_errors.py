"""Why no connection to PostgreSQL was opened, in its own words, without addresses or passwords."""

import os
import re
import socket
import ssl

import asyncpg

from payintent.domain.errors import DatabaseRefusedError, StorageUnavailableError

#: What the server refuses however often it is tried: a role, a password, a name, a permission.
_FINAL: tuple[type[BaseException], ...] = (
    asyncpg.InvalidAuthorizationSpecificationError,  # no such role, or no line in pg_hba.conf
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
)
#: PgBouncer gives one code to every error; these of its texts are final.
_FINAL_AT_POOLER = re.compile(
    r"no such (?:database|user)|unsupported startup parameter|password authentication failed"
    r"|SASL authentication failed"
)
#: Beginnings of the driver's messages about a URL that quote nothing secret.
_SAFE_URL_MESSAGES = ("root certificate file ", "`ssl", "direct TLS requires ")
_ABSENCES: dict[type[BaseException], str] = {
    asyncpg.TargetServerAttributeNotMatched: "it takes no writes: a standby, or set to read only",
    TimeoutError: "no answer in time",
    socket.gaierror: "its name cannot be resolved",
    FileNotFoundError: "no such file: a socket, or a certificate that its URL names",
}
_HOST = re.compile(r"""host(?: name)? (?:"[^"]*"|'[^']*')""")
#: Of a URL that was read otherwise than it was meant: a part of the password in a name's place.
_STRANGE = frozenset("@:/?#")
_NO_DATABASE = "no such database: "
_UNREADABLE = "(not readable)"
_QUOTED_HOST = re.compile(r"'[^']*'")
_NO_TLS = "rejected SSL upgrade"


class RefusedConnectionError(ConnectionError):
    """PostgreSQL refuses the connection, and will until somebody changes something."""


def connect_error(error: BaseException) -> ConnectionError:
    """Make an error that can be shown: the driver's may hold the address, and with it a password.

    It is a `RefusedConnectionError` where trying again cannot help.
    """
    reason = _refusal(error)
    if reason is not None:
        return RefusedConnectionError(f"the database refuses the connection: {reason}")
    return ConnectionError(f"the database cannot be reached: {_absence(error)}")


def storage_error(error: BaseException) -> StorageUnavailableError:
    """Map an error while connecting to ours; `DatabaseRefusedError` where it is final."""
    final = isinstance(error, RefusedConnectionError)
    kind = DatabaseRefusedError if final else StorageUnavailableError
    return kind(str(error) or type(error).__name__)


def _refusal(error: BaseException) -> str | None:
    """Say why trying again cannot help; None where it may."""
    if isinstance(error, _FINAL):
        return _server_words(error)
    if isinstance(error, asyncpg.ProtocolViolationError) and _FINAL_AT_POOLER.search(str(error)):
        return _server_words(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {_QUOTED_HOST.sub('this host', error.verify_message)}"
    if isinstance(error, ConnectionError) and _NO_TLS in str(error):
        return "it speaks no TLS, and sslmode asks for it"
    # The driver's errors about the URL are ValueErrors; a port that is too large overflows.
    if isinstance(error, ValueError | OverflowError):
        safe = str(error).startswith(_SAFE_URL_MESSAGES)
        return str(error) if safe else "its URL cannot be read"
    return None


def _absence(error: BaseException) -> str:
    """Say why the database is away, as far as that holds no address."""
    if isinstance(error, asyncpg.PostgresError):
        return _server_words(error)
    for kind, words in _ABSENCES.items():
        if isinstance(error, kind):
            return words
    if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno).lower()
    return type(error).__name__


def _server_words(error: BaseException) -> str:
    """Return the first line of the server's message; it names this host where pg_hba refuses."""
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return _hide_strange_names(_HOST.sub("this host", first))


def _hide_strange_names(words: str) -> str:
    """Hide names that no database has: they may be a part of a password, read out of its place."""
    before, found, database = words.partition(_NO_DATABASE)
    parts = before.split('"')
    for place in range(1, len(parts) - 1, 2):  # between quotes
        if _STRANGE & set(parts[place]):
            parts[place] = _UNREADABLE
    shown = '"'.join(parts).replace(f'"{_UNREADABLE}"', _UNREADABLE)
    return shown + found + (_UNREADABLE if _STRANGE & set(database) else database)
