"""Sign-in with a passkey or a link from the operator, sign-out, and the passkey page."""

from collections.abc import Mapping
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from payintent.core.errors import NotFoundError
from payintent.db.database import Tx, get_current_time
from payintent.http.address_limits import MEMBER, UnauthorizedError
from payintent.http.application import read_path_uuid
from payintent.http.pages.forms import make_form_token, make_token
from payintent.http.responses import json_response
from payintent.members import sessions_store as session_store
from payintent.members import store as member_store
from payintent.members.operations import digest_link
from payintent.portal import visits
from payintent.portal.challenges import (
    ChallengePurpose,
    PasskeyError,
    make_challenge,
    read_challenge,
)
from payintent.portal.context import PortalContext, get_portal_context
from payintent.portal.visits import MemberVisit
from payintent.runtime.log import get_logger

_log = get_logger("portal")
_ACCESS_PAGE = "/merchant/access"
_NO_SUCH_PASSKEY = "This passkey does not exist."
_PASSKEY_NOT_ADDED = "The passkey could not be added. Try again."
_SIGN_IN_FAILED = (
    "We could not sign you in. Try again, or ask your payment service provider for a sign-in link."
)
_LINK_FAILED = (
    "This link is invalid or has expired. A link can be used once, within 72 hours. "
    "Ask your payment service provider for a new link."
)


@visits.portal_page
async def get_portal(request: Request) -> Response:
    del request
    return visits.redirect(visits.OVERVIEW)


@visits.portal_page
async def get_portal_sign_in(request: Request) -> Response:
    context = get_portal_context(request)
    next_path = visits.get_safe_next_path(request.query_params.get("next"))
    token = visits.make_session_cookie(context.settings).read(request)
    if await visits.find_member_session(context, token) is not None:
        return visits.redirect(next_path)
    return _render_sign_in_page(request, context, next_path)


@visits.portal_page
async def get_portal_sign_in_options(request: Request) -> Response:
    """`GET /merchant/sign-in/options`: passkey options for the browser that opened the page."""
    context = get_portal_context(request)
    visitor = visits.make_visitor_cookie(context.settings).read(request)
    if visitor is None:
        raise UnauthorizedError(MEMBER, "missing")
    now = await get_current_time(context.database)
    challenge = make_challenge(context.encryption, ChallengePurpose.SIGN_IN, visitor, now)
    verifier = context.open_passkey_verifier()
    return json_response(verifier.make_sign_in_options(challenge), headers=visits.HEADERS)


@visits.portal_page
async def post_portal_sign_in(request: Request) -> Response:
    context = get_portal_context(request)
    visitor = visits.make_visitor_cookie(context.settings).read(request) or ""
    form = await visits.read_portal_form(request, context, f"visitor:{visitor}")
    next_path = visits.get_safe_next_path(form.get("next"))
    try:
        credential = form.get("credential", "")
        async with context.attempts.attempt(request, MEMBER):
            token = await _sign_in_with_passkey(context, visitor, credential)
    except UnauthorizedError:
        return _render_sign_in_page(request, context, next_path, _SIGN_IN_FAILED)
    return _enter_portal(context, token, next_path)


@visits.portal_page
async def get_link(request: Request) -> Response:
    """`GET /merchant/link/{token}`: show a sign-in button.

    Mail scanners open links, so opening a link must not use it up.
    """
    return _render_link_page(request, get_portal_context(request))


@visits.portal_page
async def post_link(request: Request) -> Response:
    context = get_portal_context(request)
    visitor = visits.make_visitor_cookie(context.settings).read(request) or ""
    await visits.read_portal_form(request, context, f"visitor:{visitor}")
    link: str = request.path_params["token"]
    try:
        async with context.attempts.attempt(request, MEMBER):
            token, next_path = await _sign_in_with_link(context, link)
    except UnauthorizedError:
        return _render_link_page(request, context, _LINK_FAILED)
    return _enter_portal(context, token, next_path)


@visits.member_page(any_side=True)
async def post_portal_sign_out(visit: MemberVisit) -> Response:
    """`POST /merchant/sign-out`: end this session, or all of the member's sessions."""
    database = visit.context.database
    if visit.form.get("everywhere"):
        await session_store.end_all(database, visit.session.member_id)
    else:
        await session_store.end(database, visit.session.id)
    response = visits.redirect(visits.SIGN_IN)
    visits.make_session_cookie(visit.context.settings).clear(response)
    return response


async def _sign_in_with_passkey(context: PortalContext, visitor: str, credential: str) -> str:
    """Verify a passkey, open a session and return its cookie.

    Raises `UnauthorizedError` if the passkey is not accepted.
    """
    verifier = context.open_passkey_verifier()
    try:
        assertion = verifier.read_assertion(credential)
        now = await get_current_time(context.database)
        passkey = await member_store.find_passkey(context.database, assertion.credential_id)
        if passkey is None:
            raise UnauthorizedError(MEMBER, "unknown")
        use = verifier.check_assertion(
            assertion,
            passkey,
            lambda challenge: read_challenge(
                context.encryption, ChallengePurpose.SIGN_IN, visitor, challenge, now
            ),
        )
    except PasskeyError as error:
        raise UnauthorizedError(MEMBER, "wrong_secret") from error
    async with context.database.transaction() as tx:
        member_id = await member_store.use_passkey(tx, use)
        if member_id is None:  # the challenge was already used, or the passkey was cloned
            raise UnauthorizedError(MEMBER, "used")
        token = await _open_session(context, tx, member_id)
    _log.info("member_signed_in", member=str(member_id), by="passkey")
    return token


async def _sign_in_with_link(context: PortalContext, link: str) -> tuple[str, str]:
    """Redeem a link, open a session, and return its cookie and the path of the next page.

    Raises `UnauthorizedError` if the link is not accepted.
    """
    async with context.database.transaction() as tx:
        digest = digest_link(context.operation_context, link)
        member_id = await member_store.consume_link(tx, digest)
        if member_id is None:
            raise UnauthorizedError(MEMBER, "unknown")
        token = await _open_session(context, tx, member_id)
        has_passkeys = bool(await member_store.list_passkeys(tx, member_id))
    _log.info("member_signed_in", member=str(member_id), by="link")
    return token, visits.OVERVIEW if has_passkeys else "/merchant/access"


async def _open_session(context: PortalContext, tx: Tx, member_id: UUID) -> str:
    token = make_token()
    digest = visits.compute_session_digest(context.encryption, token)
    await session_store.add(tx, tx.id_generator.new_id(), member_id, digest)
    return token


def _enter_portal(context: PortalContext, token: str, next_path: str) -> Response:
    response = visits.redirect(next_path)
    visits.make_session_cookie(context.settings).set(response, token)
    visits.make_visitor_cookie(context.settings).clear(response)
    return response


def _render_sign_in_page(
    request: Request, context: PortalContext, next_path: str, problem: str | None = None
) -> Response:
    fields = {"title": "Sign in", "next_path": next_path, "scripts": ["passkeys.js"]}
    return _render_visitor_page(request, context, "sign_in.html", fields, problem)


def _render_link_page(
    request: Request, context: PortalContext, problem: str | None = None
) -> Response:
    fields = {"title": "Sign in with a link", "address": request.url.path}
    return _render_visitor_page(request, context, "link.html", fields, problem)


def _render_visitor_page(
    request: Request,
    context: PortalContext,
    template: str,
    fields: Mapping[str, object],
    problem: str | None,
) -> Response:
    cookie = visits.make_visitor_cookie(context.settings)
    visitor = cookie.read(request) or make_token()
    token = make_form_token(context.encryption, f"visitor:{visitor}")
    all_fields = {**fields, "problem_text": problem, "form_token": token}
    response = visits.render_portal_page(request, template, all_fields, 403 if problem else 200)
    cookie.set(response, visitor)
    return response


@visits.member_page()
async def get_access(visit: MemberVisit) -> Response:
    return await _render_access_page(visit)


@visits.member_page()
async def get_passkey_options(visit: MemberVisit) -> Response:
    context, session = visit.context, visit.session
    now = await get_current_time(context.database)
    passkeys = await member_store.list_passkeys(context.database, session.member_id)
    challenge = make_challenge(context.encryption, ChallengePurpose.REGISTER, str(session.id), now)
    verifier = context.open_passkey_verifier()
    return json_response(
        verifier.make_registration_options(session, passkeys, challenge), 200, visits.HEADERS
    )


@visits.member_page(any_side=True)
async def post_passkey(visit: MemberVisit) -> Response:
    context, session = visit.context, visit.session
    now = await get_current_time(context.database)
    verifier = context.open_passkey_verifier()
    try:
        passkey = verifier.check_registration(
            visit.form.get("credential", ""),
            lambda challenge: read_challenge(
                context.encryption, ChallengePurpose.REGISTER, str(session.id), challenge, now
            ),
        )
    except PasskeyError as error:
        _log.warning("passkey_refused", member=str(session.member_id), why=str(error))
        return await _render_access_page(visit, _PASSKEY_NOT_ADDED)
    async with context.database.transaction() as tx:
        is_added = await member_store.add_passkey(
            tx, tx.id_generator.new_id(), session.member_id, passkey.public_key, passkey.use
        )
    if not is_added:
        return await _render_access_page(visit, _PASSKEY_NOT_ADDED)
    _log.info("passkey_added", member=str(session.member_id))
    return visits.redirect(_ACCESS_PAGE)


@visits.member_page(any_side=True)
async def post_remove_passkey(visit: MemberVisit) -> Response:
    passkey_id = read_path_uuid(visit.request, "passkey_id", _NO_SUCH_PASSKEY)
    async with visit.context.database.transaction() as tx:
        if not await member_store.remove_passkey(tx, visit.session.member_id, passkey_id):
            raise NotFoundError(_NO_SUCH_PASSKEY)
    _log.info("passkey_removed", member=str(visit.session.member_id))
    return visits.redirect(_ACCESS_PAGE)


async def _render_access_page(visit: MemberVisit, problem: str | None = None) -> Response:
    return visit.render(
        "access.html",
        "Your access",
        status=400 if problem else 200,
        passkeys=await member_store.list_passkeys(visit.context.database, visit.session.member_id),
        problem_text=problem,
        scripts=["passkeys.js"],
    )
