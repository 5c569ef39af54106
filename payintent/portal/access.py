"""The page where members add and remove their passkeys."""

from starlette.responses import Response

from payintent.core.errors import NotFoundError
from payintent.db.database import current_time
from payintent.http.application import read_path_uuid
from payintent.http.responses import json_response
from payintent.members import store as member_store
from payintent.portal.challenges import (
    ChallengePurpose,
    PasskeyError,
    make_challenge,
    read_challenge,
)
from payintent.portal.rendering import HEADERS
from payintent.portal.visits import Visit, member_page, redirect
from payintent.runtime.log import get_logger

_log = get_logger("portal")
_ACCESS = "/merchant/access"
_UNKNOWN = "You have no such passkey."
_NOT_ADDED = "This passkey could not be added. Try again."


@member_page()
async def get_access(visit: Visit) -> Response:
    return await _access_page(visit)


@member_page()
async def get_passkey_options(visit: Visit) -> Response:
    context, session = visit.context, visit.session
    now = await current_time(context.database)
    passkeys = await member_store.list_passkeys(context.database, session.member_id)
    challenge = make_challenge(context.encryption, ChallengePurpose.REGISTER, str(session.id), now)
    verifier = context.open_passkey_verifier()
    return json_response(verifier.registration_options(session, passkeys, challenge), 200, HEADERS)


@member_page()
async def post_passkey(visit: Visit) -> Response:
    context, session = visit.context, visit.session
    now = await current_time(context.database)
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
        return await _access_page(visit, _NOT_ADDED)
    async with context.database.transaction() as tx:
        is_added = await member_store.add_passkey(
            tx, tx.id_generator.new_id(), session.member_id, passkey.public_key, passkey.use
        )
    if not is_added:
        return await _access_page(visit, _NOT_ADDED)
    _log.info("passkey_added", member=str(session.member_id))
    return redirect(_ACCESS)


@member_page()
async def post_remove_passkey(visit: Visit) -> Response:
    passkey_id = read_path_uuid(visit.request, "passkey_id", _UNKNOWN)
    async with visit.context.database.transaction() as tx:
        if not await member_store.remove_passkey(tx, visit.session.member_id, passkey_id):
            raise NotFoundError(_UNKNOWN)
    _log.info("passkey_removed", member=str(visit.session.member_id))
    return redirect(_ACCESS)


async def _access_page(visit: Visit, problem: str | None = None) -> Response:
    return visit.render(
        "access.html",
        "Your access",
        status=400 if problem else 200,
        passkeys=await member_store.list_passkeys(visit.context.database, visit.session.member_id),
        problem_text=problem,
        scripts=["passkeys.js"],
    )
