"""Explain failed connections to PostgreSQL in its own words, without addresses or passwords."""

import os
import re
import socket
import ssl

import asyncpg

from payintent.domain.errors import DatabaseRefusedError, StorageUnavailableError

#: Errors that a retry cannot fix: a wrong role, password or database name, no permission.
_FINAL: tuple[type[BaseException], ...] = (
    asyncpg.InvalidAuthorizationSpecificationError,  # no such role, or no line in pg_hba.conf
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
)
#: PgBouncer uses the same code for every error; these of its messages are final.
_FINAL_AT_POOLER = re.compile(
    r"no such (?:database|user)|unsupported startup parameter|password authentication failed"
    r"|SASL authentication failed"
)
#: Prefixes of the driver's messages about a URL that reveal no secret.
_SAFE_URL_MESSAGES = ("root certificate file ", "`ssl", "direct TLS requires ")
_OUTAGES: dict[type[BaseException], str] = {
    asyncpg.TargetServerAttributeNotMatched: "it is a standby or read-only",
    TimeoutError: "it did not respond in time",
    socket.gaierror: "its name cannot be resolved",
    FileNotFoundError: "no such file: the socket, or a certificate in the URL",
}
_HOST = re.compile(r"""host(?: name)? (?:"[^"]*"|'[^']*')""")
#: Characters of a misparsed URL, in which a part of the password is mistaken for a name.
_SUSPICIOUS = frozenset("@:/?#")
_NO_DATABASE = "no such database: "
_UNREADABLE = "(not readable)"
_QUOTED_HOST = re.compile(r"'[^']*'")
_NO_TLS = "rejected SSL upgrade"


class RefusedConnectionError(ConnectionError):
    """PostgreSQL refuses the connection, and a retry is useless until something is changed."""


def connect_error(error: BaseException) -> ConnectionError:
    """Return an error that is safe to display: the driver's may quote the address and password.

    It is a `RefusedConnectionError` if a retry cannot help.
    """
    reason = _refusal(error)
    if reason is not None:
        return RefusedConnectionError(f"the database refuses the connection: {reason}")
    return ConnectionError(f"the database cannot be reached: {_outage(error)}")


def storage_error(error: BaseException) -> StorageUnavailableError:
    """Translate a connection error; `DatabaseRefusedError` if it is final."""
    is_final = isinstance(error, RefusedConnectionError)
    kind = DatabaseRefusedError if is_final else StorageUnavailableError
    return kind(str(error) or type(error).__name__)


def _refusal(error: BaseException) -> str | None:
    """Explain a final error; None if a retry may help."""
    if isinstance(error, _FINAL):
        return _server_message(error)
    if isinstance(error, asyncpg.ProtocolViolationError) and _FINAL_AT_POOLER.search(str(error)):
        return _server_message(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = _QUOTED_HOST.sub("this host", error.verify_message)
        return f"its certificate is refused: {reason}"
    if isinstance(error, ConnectionError) and _NO_TLS in str(error):
        return "it does not support TLS, which sslmode requires"
    # The driver's errors about the URL are ValueErrors; a port that is too large overflows.
    if isinstance(error, ValueError | OverflowError):
        safe = str(error).startswith(_SAFE_URL_MESSAGES)
        return str(error) if safe else "its URL cannot be read"
    return None


def _outage(error: BaseException) -> str:
    """Explain why the database is unreachable, without its address."""
    if isinstance(error, asyncpg.PostgresError):
        return _server_message(error)
    for kind, text in _OUTAGES.items():
        if isinstance(error, kind):
            return text
    if isinstance(error, OSError) and error.errno and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno).lower()
    return type(error).__name__


def _server_message(error: BaseException) -> str:
    """Return the first line of the server's message, without the host that pg_hba quotes."""
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return _hide_suspicious_names(_HOST.sub("this host", first))


def _hide_suspicious_names(message: str) -> str:
    """Hide names with suspicious characters: they may be a part of a misparsed password."""
    before, separator, database = message.partition(_NO_DATABASE)
    parts = before.split('"')
    for index in range(1, len(parts) - 1, 2):  # between quotes
        if _SUSPICIOUS & set(parts[index]):
            parts[index] = _UNREADABLE
    safe = '"'.join(parts).replace(f'"{_UNREADABLE}"', _UNREADABLE)
    return safe + separator + (_UNREADABLE if _SUSPICIOUS & set(database) else database)
