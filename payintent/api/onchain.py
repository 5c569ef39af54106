"""The wallet's routes: a chain, an on-chain session, and posted transactions."""

import re

from starlette.requests import Request
from starlette.responses import Response

from payintent.api import schemas
from payintent.api.context import get_context
from payintent.api.etag import json_response
from payintent.api.request_body import read_json
from payintent.domain import ids
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.onchain.views import chain_view, find_open_session, session_view
from payintent.storage.onchain import pending_transfers

_SLUG = re.compile(r"[a-z]{1,20}", re.ASCII)
_TX_HASH = re.compile(r"0x[0-9a-fA-F]{64}", re.ASCII)
_STEPS = ("approve", "pay")


async def get_chain(request: Request) -> Response:
    """`GET /v1/chains/{slug}`: what contract calls need; must not be cached."""
    app = get_context(request)
    app.addresses.take(app.viewers.viewer_address(request))
    slug: str = request.path_params["slug"]
    if not _SLUG.fullmatch(slug):
        raise RefusedError(ErrorCode.NOT_FOUND, "no such chain")
    return json_response(await chain_view(app.service.database, slug))


async def get_session(request: Request) -> Response:
    """`GET /v1/onchain/sessions/{session_id}`: the calls of one session, ready to send."""
    app = get_context(request)
    app.addresses.take(app.viewers.viewer_address(request))
    session_id = ids.parse_id(ids.SESSION, request.path_params["session_id"])
    service = app.service
    return json_response(await session_view(service.database, session_id, service.wallet_handoff))


async def post_transaction(request: Request) -> Response:
    """`POST /v1/onchain/sessions/{session_id}/transactions`: a hash, which proves nothing."""
    app = get_context(request)
    app.addresses.take(app.viewers.viewer_address(request))
    service = app.service
    body = await read_json(request, schemas.TRANSACTION, service.settings.body_bytes_max)
    if not _TX_HASH.fullmatch(body.tx_hash):
        raise RefusedError(ErrorCode.BAD_REQUEST, "tx_hash must be 0x and 64 hex digits")
    if body.step not in _STEPS:
        raise RefusedError(ErrorCode.BAD_REQUEST, f"step must be one of {', '.join(_STEPS)}")
    session_id = ids.parse_id(ids.SESSION, request.path_params["session_id"])
    session = await find_open_session(service.database, session_id)
    async with service.database.transaction() as tx:
        kept = await pending_transfers.add_posted(
            tx, session.id, bytes.fromhex(body.tx_hash[2:]), body.step
        )
    if not kept:
        raise RefusedError(ErrorCode.CONFLICT, "this session has too many transactions")
    return json_response({"tx_hash": body.tx_hash.lower(), "step": body.step}, 202)
