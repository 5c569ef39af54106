"""The gateway adapter for payments to deposit addresses.

Creating a session derives an address and stores it. The deposit watcher reports captures; a session
ends at its deadline.
"""

from typing import Any

from payintent.chains import store as chain_store
from payintent.core import ids
from payintent.db.database import Database
from payintent.evm.abi import to_checksum_address
from payintent.evm.deposits import derive_deposit_address, init_code_hash
from payintent.gateways.port import (
    AccountCheck,
    CallbackRequest,
    CallbackResponse,
    CreationResult,
    FailureReason,
    GatewayAccount,
    GatewayCapabilities,
    GatewayRefundRequest,
    GatewaySessionRef,
    GatewaySessionRequest,
    GatewaySessionState,
    InvalidCallbackError,
    RefundResult,
    SessionCreated,
    SessionRejected,
    SessionReport,
    SessionResult,
    VerifiedCallback,
)
from payintent.onchain import deposits_store
from payintent.onchain.deposit_rules import decide_deposit_session
from payintent.onchain.gateway import OnchainGateway
from payintent.runtime.id_generator import new_pay_uuid


class DepositGateway:
    """Each gateway account is a deposit factory on a chain."""

    provider = chain_store.DEPOSIT_PROVIDER
    capabilities = GatewayCapabilities(
        credentials=frozenset({"chain", "network_id"}),
        decimals=None,  # depends on the token
        remote=False,
    )

    def __init__(self, database: Database, api_base: str, contract: OnchainGateway) -> None:
        self._database = database
        self._api_base = api_base
        self._contract = contract  # pays refunds

    async def create_session(
        self, account: GatewayAccount, request: GatewaySessionRequest
    ) -> CreationResult:
        """Derive a deposit address from a random uuid. A repeated request keeps its address."""
        factory = await chain_store.get_contract(self._database, account.id)
        if factory is None or factory.forwarder is None:
            return SessionRejected(detail=f"account {account.id} is not a deposit factory")
        uuid = new_pay_uuid().bytes
        address = derive_deposit_address(factory.address, init_code_hash(factory.forwarder), uuid)
        stored_uuid = await deposits_store.add_address(
            self._database, request.session_id, account.id, uuid, address
        )
        action = self._make_action(account, ids.format_id(ids.SESSION, request.session_id))
        return SessionCreated(reference=f"0x{stored_uuid.hex()}", next_action=action)

    def _make_action(self, account: GatewayAccount, session_id: str) -> dict[str, Any]:
        return {
            "type": "onchain_session",
            "onchain_session": {
                "session_id": session_id,
                "chain": account.credentials["chain"],
                "network_id": int(account.credentials["network_id"]),
                "url": f"{self._api_base}/onchain/sessions/{session_id}",
            },
        }

    async def close_session(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionResult:
        return await self.inquire(account, session)

    async def inquire(self, account: GatewayAccount, session: GatewaySessionRef) -> SessionResult:
        del account
        deposits = await deposits_store.get_deposits(self._database, [session.session_id])
        if session.session_id not in deposits:
            return SessionReport(state=GatewaySessionState.ABSENT)
        return decide_deposit_session(deposits[session.session_id].evidence)

    def parse_callback(self, account: GatewayAccount, request: CallbackRequest) -> VerifiedCallback:
        del account, request
        raise InvalidCallbackError("deposit addresses do not send callbacks")

    def acknowledge(self, callback: VerifiedCallback) -> CallbackResponse:
        del callback
        return CallbackResponse()

    async def refund(self, account: GatewayAccount, request: GatewayRefundRequest) -> RefundResult:
        return await self._contract.refund(account, request)

    async def inquire_refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundResult:
        return await self._contract.inquire_refund(account, request)

    def classify_failure(self, code: str) -> FailureReason:
        reasons = set(FailureReason)
        return FailureReason(code) if code in reasons else FailureReason.UNKNOWN

    async def check_account(self, account: GatewayAccount) -> AccountCheck:
        # `payintent doctor` compares each factory with its chain.
        factory = await chain_store.get_contract(self._database, account.id)
        address = to_checksum_address(factory.address) if factory else "no address"
        return AccountCheck(problem=None, detail=f"a deposit factory at {address}")
