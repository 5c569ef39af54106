"""The built-in gateway for test payments to an address, which do not use a chain or move money."""

from payintent.chains.store import TEST_CHAIN, TEST_DEPOSIT_PROVIDER, TEST_NETWORK_ID
from payintent.core import ids
from payintent.db.database import Database
from payintent.gateways.port import (
    CreationResult,
    GatewayAccount,
    GatewayCapabilities,
    GatewaySessionRef,
    GatewaySessionRequest,
    GatewaySessionState,
    SessionCreated,
    SessionReport,
    SessionResult,
)
from payintent.merchants.provisioning import SIGNING_SECRET
from payintent.test_mode import deposits
from payintent.test_mode import store as test_store
from payintent.test_mode.gateway import TestGateway
from payintent.test_mode.model import TestSession


class TestDepositGateway(TestGateway):
    """The `Gateway` for test deposits. Callbacks and refunds work as in the test card gateway."""

    provider = TEST_DEPOSIT_PROVIDER
    capabilities = GatewayCapabilities(
        credentials=frozenset({SIGNING_SECRET}),
        decimals=None,  # depends on the token
        remote=False,
        remote_refunds=False,
        test_only=True,
    )

    def __init__(self, database: Database, api_base: str) -> None:
        self._database = database
        self._api_base = api_base

    async def create_session(
        self, account: GatewayAccount, request: GatewaySessionRequest
    ) -> CreationResult:
        """Open a session. The uuid from which its address is derived is the session's id."""
        await test_store.open_session(
            self._database,
            TestSession(
                session_id=request.session_id,
                account_id=account.id,
                amount_minor=request.amount_minor,
                currency=request.currency,
                return_url=request.return_url,
                expires_at=request.expires_at,
            ),
        )
        session_id = ids.format_id(ids.SESSION, request.session_id)
        action = {
            "type": "onchain_session",
            "onchain_session": {
                "session_id": session_id,
                "chain": TEST_CHAIN,
                "network_id": TEST_NETWORK_ID,
                "url": f"{self._api_base}/onchain/sessions/{session_id}",
            },
        }
        return SessionCreated(reference=f"0x{request.session_id.hex}", next_action=action)

    async def close_session(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionResult:
        return await self.inquire(account, session)

    async def inquire(self, account: GatewayAccount, session: GatewaySessionRef) -> SessionResult:
        test_session = await test_store.find_session(self._database, session.session_id)
        if test_session is None or test_session.account_id != account.id:
            return SessionReport(state=GatewaySessionState.ABSENT)
        async with self._database.transaction() as tx:
            return await deposits.report(tx, session.session_id)
