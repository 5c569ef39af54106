"""Stablecoins through our own contract: a gateway whose word is what the chain has made final.

Nothing is called when a session opens, and nothing can be closed: the contract's deadline does it.
What became of a session is read from the ledger that the watcher keeps.
"""

import secrets
from uuid import UUID

from payintent.domain import ids
from payintent.domain.gateway import (
    Account,
    Ack,
    BadCallback,
    Callback,
    CallbackRequest,
    Created,
    Rejected,
    Report,
    SessionRef,
    SessionRequest,
    SessionState,
    Unknown,
)
from payintent.domain.onchain import PROVIDER, Ledger, decide

_UUID_BYTES = 16


class GatewayContract:
    """Implements `Gateway` on the ledger; an account is one contract on one chain."""

    provider = PROVIDER

    def __init__(self, ledger: Ledger, api_base: str) -> None:
        self._ledger = ledger
        self._api_base = api_base

    async def create_session(
        self, account: Account, request: SessionRequest
    ) -> Created | Rejected | Unknown:
        """Name a session on the chain by 16 random bytes, which tell nothing of ours."""
        session_id = ids.text(ids.SESSION, request.session_id)
        action = {
            "type": "onchain_session",
            "onchain_session": {
                "session_id": session_id,
                "chain": account.credentials["chain"],
                "network_id": int(account.credentials["network_id"]),
                "url": f"{self._api_base}/onchain/sessions/{session_id}",
            },
        }
        return Created(reference=f"0x{secrets.token_hex(_UUID_BYTES)}", next_action=action)

    async def close_session(self, account: Account, session: SessionRef) -> Report | Unknown:
        """Tell how a session stands; it ends when nothing can come of it any more."""
        return await self.inquire(account, session)

    async def inquire(self, account: Account, session: SessionRef) -> Report | Unknown:
        """Tell how a session stands on its chain."""
        del account
        return await self._stands(session.session_id)

    def parse_callback(self, account: Account, request: CallbackRequest) -> Callback:
        """Refuse: chains call nobody back."""
        del account, request
        raise BadCallback("a contract sends no callbacks")

    def acknowledge(self, callback: Callback) -> Ack:
        """Answer nothing."""
        del callback
        return Ack()

    async def _stands(self, session_id: UUID) -> Report:
        evidence = await self._ledger.evidence(session_id)
        return decide(evidence) if evidence else Report(state=SessionState.ABSENT)
