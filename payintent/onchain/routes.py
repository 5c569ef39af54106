"""Routes for wallets, and for the wallet step of the checkout."""

import re
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from payintent.core import ids
from payintent.core.errors import BadRequestError, ConflictError, NotFoundError
from payintent.db.database import Database
from payintent.http.bodies import read_json
from payintent.http.responses import json_response
from payintent.http.viewer import ViewerReader
from payintent.merchants.limits import AddressRateLimiter
from payintent.onchain import pending_store
from payintent.onchain.wallet_sessions import (
    WalletHandoff,
    find_open_session,
    get_chain_view,
    get_session_view,
)
from payintent.payments import schemas

_SLUG = re.compile(r"[a-z]{1,20}", re.ASCII)
_TX_HASH = re.compile(r"0x[0-9a-fA-F]{64}", re.ASCII)
_STEPS = ("approve", "pay")


@dataclass(frozen=True, slots=True)
class OnchainRoutes:
    """Unauthenticated routes, rate-limited by client IP."""

    database: Database
    handoff: WalletHandoff
    viewers: ViewerReader
    address_limiter: AddressRateLimiter
    body_bytes_max: int

    def routes(self) -> list[Route]:
        session = "/v1/onchain/sessions/{session_id}"
        return [
            Route("/v1/chains/{slug}", self.get_chain, methods=["GET"]),
            Route(session, self.get_session, methods=["GET"]),
            Route(f"{session}/transactions", self.add_transaction, methods=["POST"]),
        ]

    async def get_chain(self, request: Request) -> Response:
        """`GET /chains/{slug}`: the data for contract calls. It must not be cached."""
        self._limit_address(request)
        slug: str = request.path_params["slug"]
        if not _SLUG.fullmatch(slug):
            raise NotFoundError("no such chain")
        return json_response(await get_chain_view(self.database, slug))

    async def get_session(self, request: Request) -> Response:
        """`GET /onchain/sessions/{session_id}`: a session's contract calls."""
        self._limit_address(request)
        session_id = ids.parse_id(ids.SESSION, request.path_params["session_id"])
        return json_response(await get_session_view(self.database, session_id, self.handoff))

    async def add_transaction(self, request: Request) -> Response:
        """`POST /onchain/sessions/{session_id}/transactions`: record a transaction hash.

        The hash is not treated as proof of payment.
        """
        self._limit_address(request)
        body = await read_json(request, schemas.TRANSACTION_DECODER, self.body_bytes_max)
        if not _TX_HASH.fullmatch(body.tx_hash):
            raise BadRequestError("tx_hash must be 0x followed by 64 hex digits")
        if body.step not in _STEPS:
            raise BadRequestError(f"step must be one of {', '.join(_STEPS)}")
        session_id = ids.parse_id(ids.SESSION, request.path_params["session_id"])
        session = await find_open_session(self.database, session_id)
        tx_hash = bytes.fromhex(body.tx_hash[2:])
        async with self.database.transaction() as tx:
            is_stored = await pending_store.add_posted_hash(tx, session.id, tx_hash, body.step)
        if not is_stored:
            raise ConflictError("this session has too many transactions")
        return json_response({"tx_hash": body.tx_hash.lower(), "step": body.step}, 202)

    def _limit_address(self, request: Request) -> None:
        self.address_limiter.take_token(self.viewers.get_viewer_address(request))
