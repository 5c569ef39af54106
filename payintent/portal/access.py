"""A member's own way in: passkeys that are added and removed, and sessions that are ended."""

from uuid import UUID

from starlette.responses import Response

from payintent.api.etag import json_response
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.log import get_logger
from payintent.portal.challenges import ChallengePurpose, make_challenge, read_challenge
from payintent.portal.passkey_verifier import PasskeyError, open_verifier
from payintent.portal.rendering import HEADERS, render_portal_page
from payintent.portal.visits import Visit, fields_of, member_page, redirect
from payintent.storage import members
from payintent.storage.database import current_time

_log = get_logger("portal")
_ACCESS = "/merchant/access"


@member_page()
async def get_access(visit: Visit) -> Response:
    return await _access_page(visit)


@member_page()
async def get_passkey_options(visit: Visit) -> Response:
    context, session = visit.context, visit.session
    now = await current_time(context.database)
    present = await members.list_passkeys(context.database, session.member_id)
    challenge = make_challenge(context.encryption, ChallengePurpose.REGISTER, str(session.id), now)
    verifier = open_verifier(context.settings)
    return json_response(verifier.registration_options(session, present, challenge), 200, HEADERS)


@member_page()
async def post_passkey(visit: Visit) -> Response:
    context, session = visit.context, visit.session
    now = await current_time(context.database)
    verifier = open_verifier(context.settings)
    try:
        new = verifier.check_registration(
            visit.form.get("credential", ""),
            lambda challenge: read_challenge(
                context.encryption, ChallengePurpose.REGISTER, str(session.id), challenge, now
            ),
        )
    except PasskeyError as error:
        _log.warning("passkey_refused", member=str(session.member_id), why=str(error))
        return await _access_page(visit, "This passkey could not be added. Try again.")
    async with context.database.transaction() as tx:
        added = await members.add_passkey(
            tx, tx.id_generator.new_id(), session.member_id, new.public_key, new.use
        )
    if not added:
        return await _access_page(visit, "This passkey could not be added. Try again.")
    _log.info("passkey_added", member=str(session.member_id))
    return redirect(_ACCESS)


@member_page()
async def post_remove_passkey(visit: Visit) -> Response:
    passkey_id = _read_uuid(visit.request.path_params["passkey_id"])
    async with visit.context.database.transaction() as tx:
        if not await members.remove_passkey(tx, visit.session.member_id, passkey_id):
            raise RefusedError(ErrorCode.NOT_FOUND, "You have no such passkey.")
    _log.info("passkey_removed", member=str(visit.session.member_id))
    return redirect(_ACCESS)


async def _access_page(visit: Visit, problem: str | None = None) -> Response:
    database = visit.context.database
    fields = fields_of(
        visit,
        "Your access",
        passkeys=await members.list_passkeys(database, visit.session.member_id),
        problem_text=problem,
        scripts=["passkeys.js"],
    )
    return render_portal_page(visit.request, "access.html", fields, 400 if problem else 200)


def _read_uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise RefusedError(ErrorCode.NOT_FOUND, "You have no such passkey.") from None
