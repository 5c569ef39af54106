"""Console sessions: creation at sign-in, authentication by cookie, rotation and revocation."""

import hmac
from dataclasses import dataclass, field
from uuid import UUID

from starlette.requests import Request

from payintent.console import sessions_store as session_store
from payintent.console.context import ConsoleContext
from payintent.console.sessions_store import ConsoleSessionRecord, SessionHolder
from payintent.core.access import OPERATOR, parse_api_key
from payintent.db.database import Tx
from payintent.http.address_limits import UnauthorizedError
from payintent.http.pages.forms import SignInCookie, make_token
from payintent.operators.access import check_operator_token
from payintent.operators.operation import Actor
from payintent.runtime.encryption import Encryption
from payintent.runtime.log import get_logger
from payintent.runtime.settings import Settings

_log = get_logger("operator")
_COOKIE_CHARS_MAX = 100
_BROWSER_CHARS_MAX = 200
_MAX_AGE_S = 12 * 3600
_DELETED_AFTER_DAYS = 7
_DELETED_MAX = 100  # per sign-in


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSession:
    """The session of a signed-in operator, with the CSRF token for its forms."""

    id: UUID
    actor: Actor
    csrf: str = field(repr=False)
    holder: SessionHolder
    cookie: str | None = field(repr=False)  # new cookie value if the secret was rotated


@dataclass(frozen=True, slots=True)
class NewSessionCookie:
    session_id: UUID
    cookie: str = field(repr=False)


def make_console_cookie(settings: Settings) -> SignInCookie:
    return SignInCookie("payintent-console", bool(settings.console_base), _MAX_AGE_S)


async def open_session(context: ConsoleContext, request: Request, token_text: str) -> str:
    """Create a session for an operator token, and return the cookie value.

    Raises `UNAUTHORIZED` if the token is invalid, and `RATE_LIMITED` after too many invalid tokens
    from the same client IP.
    """
    database, encryption = context.database, context.encryption
    async with context.attempts.attempt(request, OPERATOR):
        token = parse_api_key(OPERATOR, token_text)
        if token is None:
            reason = "malformed" if token_text else "missing"
            raise UnauthorizedError(OPERATOR, reason)
        operator = await check_operator_token(database, encryption, token)
    async with database.transaction() as tx:
        holder = SessionHolder(token_public_id=token.public_id)
        new_cookie = await add_session(context, tx, request, holder)
    log_sign_in(context, request, new_cookie, operator.name, "token")
    return new_cookie.cookie


async def add_session(
    context: ConsoleContext, tx: Tx, request: Request, holder: SessionHolder
) -> NewSessionCookie:
    """Create a session for an authenticated operator, and delete a batch of old sessions."""
    session_id, secret = tx.id_generator.new_id(), make_token()
    agent = request.headers.get("user-agent", "")
    browser = "".join(char if char.isprintable() else "?" for char in agent)
    await session_store.delete_old(tx, _DELETED_AFTER_DAYS, _DELETED_MAX)
    await session_store.add(
        tx,
        session_id,
        holder,
        digest=_compute_digest(context.encryption, session_id, secret),
        address=context.viewers.get_caller_address(request),
        browser=browser[:_BROWSER_CHARS_MAX],
    )
    return NewSessionCookie(session_id, f"{session_id}.{secret}")


def log_sign_in(
    context: ConsoleContext,
    request: Request,
    new_cookie: NewSessionCookie,
    operator: str,
    method: str,
) -> None:
    _log.info(
        "console_signed_in",
        who=operator,
        by=method,
        session=str(new_cookie.session_id),
        address=context.viewers.get_caller_address(request),
    )


async def find_session(context: ConsoleContext, request: Request) -> OperatorSession | None:
    """Return the valid session that the request's cookie identifies.

    If the cookie's secret was replaced more than a minute ago, the cookie may have been stolen, and
    the session is revoked. A wrong secret counts as a failed authentication from the client's IP.
    """
    cookie = _parse_cookie(make_console_cookie(context.settings).read(request) or "")
    if cookie is None:
        return None
    session_id, secret = cookie
    record = await session_store.find(context.database, session_id)
    if record is None:
        return None
    digest = _compute_digest(context.encryption, session_id, secret)
    is_current = hmac.compare_digest(digest, record.digest)
    async with context.attempts.attempt(request, OPERATOR):
        if not is_current:
            await _check_previous(context, record, digest)
    if not record.used_recently:
        await session_store.record_use(context.database, record.id, record.holder)
    return OperatorSession(
        id=record.id,
        actor=Actor(record.name, role=record.role, uses_http=True),
        csrf=context.encryption.digest(f"console form:{record.id}").hex(),
        holder=record.holder,
        cookie=await _rotate(context, record) if is_current and record.is_rotation_due else None,
    )


async def end_session(context: ConsoleContext, session: OperatorSession, session_id: UUID) -> bool:
    """End one of the signed-in operator's sessions; return False if there is no such session."""
    is_revoked = await session_store.revoke(context.database, session_id, session.holder)
    if is_revoked:
        _log.info("console_session_ended", who=session.actor.name, session=str(session_id))
    return is_revoked


async def _check_previous(
    context: ConsoleContext, record: ConsoleSessionRecord, digest: bytes
) -> None:
    """Accept the previous secret for one minute after rotation. Later use revokes the session."""
    previous_digest = record.previous_digest
    if previous_digest is None or not hmac.compare_digest(digest, previous_digest):
        raise UnauthorizedError(OPERATOR, "wrong_secret")
    if not record.is_previous_valid:
        await session_store.revoke(context.database, record.id, record.holder)
        _log.warning("console_session_reused", who=record.name, session=str(record.id))
        raise UnauthorizedError(OPERATOR, "replaced")


async def _rotate(context: ConsoleContext, record: ConsoleSessionRecord) -> str | None:
    """Replace the secret and return the new cookie; None if a concurrent request replaced it."""
    secret = make_token()
    digest = _compute_digest(context.encryption, record.id, secret)
    if await session_store.rotate(context.database, record.id, record.digest, digest):
        return f"{record.id}.{secret}"
    return None


def _compute_digest(encryption: Encryption, session_id: UUID, secret: str) -> bytes:
    return encryption.digest(f"console session:{session_id}:{secret}")


def _parse_cookie(value: str) -> tuple[UUID, str] | None:
    session_id, dot, secret = value.partition(".")
    if not dot or len(value) > _COOKIE_CHARS_MAX or not secret.isascii():
        return None
    try:
        return UUID(session_id), secret
    except ValueError:
        return None
