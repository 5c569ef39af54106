"""Sessions of the console: opened, kept in a cookie, rotated, ended."""

import hmac
from dataclasses import dataclass, field
from uuid import UUID

from starlette.requests import Request

from payintent.api.authentication_failures import UnauthorizedError
from payintent.api.operator_access import check_operator_token
from payintent.config import Settings
from payintent.console.context import ConsoleContext
from payintent.domain import api_key
from payintent.encryption import Encryption
from payintent.log import get_logger
from payintent.operations.base import Actor
from payintent.storage import console_sessions
from payintent.storage.console_sessions import (
    ConsoleSessionRecord,
    NewConsoleSession,
    SessionHolder,
)
from payintent.storage.database import Tx
from payintent.web.cookies import SignInCookie, make_token

_log = get_logger("operator")
_COOKIE_CHARS_MAX = 100
_BROWSER_MAX = 200
_MAX_AGE_S = 12 * 3600
_DELETED_AFTER_DAYS = 7
_DELETED_MAX = 100  # at each sign-in


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSession:
    """The signed-in operator of a request, and the token that its forms carry."""

    id: UUID
    actor: Actor
    csrf: str = field(repr=False)
    holder: SessionHolder
    cookie: str | None = field(repr=False)  # to be set with the answer, where it was rotated


@dataclass(frozen=True, slots=True)
class OpenedSession:
    id: UUID
    cookie: str = field(repr=False)


def console_cookie(settings: Settings) -> SignInCookie:
    return SignInCookie("payintent-console", bool(settings.console_base), _MAX_AGE_S)


async def open_session(context: ConsoleContext, request: Request, token_text: str) -> str:
    """Open a session with an operator's token and return the value of its cookie.

    Raises `UNAUTHORIZED` if the token is none, and `RATE_LIMITED` where too many of the
    request's address were none.
    """
    database, encryption = context.database, context.encryption
    async with context.attempts.attempt(request, api_key.OPERATOR):
        token = api_key.parse_api_key(api_key.OPERATOR, token_text)
        if token is None:
            reason = "malformed" if token_text else "missing"
            raise UnauthorizedError(api_key.OPERATOR, reason)
        operator = await check_operator_token(database, encryption, token)
    async with database.transaction() as tx:
        holder = SessionHolder(token_public_id=token.public_id)
        opened = await add_session(context, tx, request, holder)
    note_sign_in(context, request, opened, operator.name, "token")
    return opened.cookie


async def add_session(
    context: ConsoleContext, tx: Tx, request: Request, holder: SessionHolder
) -> OpenedSession:
    """Add a session of an operator who is authenticated, and forget old ones."""
    session_id, secret = tx.id_generator.new_id(), make_token()
    new = NewConsoleSession(
        id=session_id,
        holder=holder,
        digest=_digest(context.encryption, session_id, secret),
        address=context.viewers.caller_address(request),
        browser=_printable(request.headers.get("user-agent", ""))[:_BROWSER_MAX],
    )
    await console_sessions.delete_old(tx, _DELETED_AFTER_DAYS, _DELETED_MAX)
    await console_sessions.add(tx, new)
    return OpenedSession(id=session_id, cookie=f"{session_id}.{secret}")


def note_sign_in(
    context: ConsoleContext, request: Request, opened: OpenedSession, who: str, by: str
) -> None:
    address = context.viewers.caller_address(request)
    _log.info("console_signed_in", who=who, by=by, session=str(opened.id), address=address)


async def find_session(context: ConsoleContext, request: Request) -> OperatorSession | None:
    """Find the session of a request's cookie; None if there is none that counts.

    A secret that was replaced more than a minute ago ends its session: two hold it. A wrong
    secret counts as a failed authentication of its address.
    """
    cookie = _parse_cookie(console_cookie(context.settings).read(request) or "")
    if cookie is None:
        return None
    session_id, secret = cookie
    found = await console_sessions.find(context.database, session_id)
    if found is None:
        return None
    async with context.attempts.attempt(request, api_key.OPERATOR):
        given = _digest(context.encryption, session_id, secret)
        is_present = hmac.compare_digest(given, found.digest)
        if not is_present and not _matches(given, found.digest_before):
            await _refuse(context, found, given)
    if not found.is_use_noted:
        await console_sessions.note_use(context.database, found.id, found.holder)
    rotated = await _rotate(context, found) if is_present and found.is_rotation_due else None
    return OperatorSession(
        id=found.id,
        actor=Actor(found.name, role=found.role, over_http=True),
        csrf=_csrf_token(context.encryption, found.id),
        holder=found.holder,
        cookie=rotated,
    )


async def end_session(context: ConsoleContext, session: OperatorSession, session_id: UUID) -> bool:
    """End a session of the signed-in operator; False where it is no open one of theirs."""
    ended = await console_sessions.revoke(context.database, session_id, session.holder)
    if ended:
        _log.info("console_session_ended", who=session.actor.who, session=str(session_id))
    return ended


async def _refuse(context: ConsoleContext, found: ConsoleSessionRecord, given: bytes) -> None:
    """Refuse a secret that is none, or that was replaced a while ago, which ends the session."""
    if _matches(given, found.was_digest_before):
        await console_sessions.revoke(context.database, found.id, found.holder)
        _log.warning("console_session_reused", who=found.name, session=str(found.id))
        raise UnauthorizedError(api_key.OPERATOR, "replaced")
    raise UnauthorizedError(api_key.OPERATOR, "wrong_secret")


async def _rotate(context: ConsoleContext, found: ConsoleSessionRecord) -> str | None:
    """Give the session another secret; None if another request did so just now."""
    secret = make_token()
    digest = _digest(context.encryption, found.id, secret)
    if await console_sessions.rotate(context.database, found.id, found.digest, digest):
        return f"{found.id}.{secret}"
    return None


def _matches(given: bytes, stored: bytes | None) -> bool:
    return stored is not None and hmac.compare_digest(given, stored)


def _digest(encryption: Encryption, session_id: UUID, secret: str) -> bytes:
    return encryption.digest(f"console session:{session_id}:{secret}")


def _csrf_token(encryption: Encryption, session_id: UUID) -> str:
    return encryption.digest(f"console form:{session_id}").hex()


def _parse_cookie(value: str) -> tuple[UUID, str] | None:
    session_id, dot, secret = value.partition(".")
    if not dot or len(value) > _COOKIE_CHARS_MAX or not secret.isascii():
        return None
    try:
        return UUID(session_id), secret
    except ValueError:
        return None


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)
