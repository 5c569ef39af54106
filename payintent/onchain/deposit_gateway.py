"""The gateway adapter for payments to deposit addresses.

Creating a session derives and stores an address. The deposit watcher reports captures. A session
ends at its deadline.
"""

from payintent.chains import store as chain_store
from payintent.evm.abi import to_checksum_address
from payintent.evm.deposits import derive_deposit_address, init_code_hash
from payintent.gateways.port import (
    AccountCheck,
    CreationResult,
    GatewayAccount,
    GatewaySessionRef,
    GatewaySessionRequest,
    GatewaySessionState,
    SessionCreated,
    SessionRejected,
    SessionReport,
    SessionResult,
)
from payintent.onchain import deposits_store
from payintent.onchain.deposit_rules import decide_deposit_session
from payintent.onchain.gateway import OnchainGateway
from payintent.runtime.id_generator import new_pay_uuid


class DepositGateway(OnchainGateway):
    """Each gateway account is a deposit factory on a chain. Refunds use payment contracts."""

    provider = chain_store.DEPOSIT_PROVIDER

    async def create_session(
        self, account: GatewayAccount, request: GatewaySessionRequest
    ) -> CreationResult:
        """Derive a deposit address from a random uuid. A repeated request uses the same address."""
        factory = await chain_store.get_contract(self._database, account.id)
        if factory is None or factory.forwarder is None:
            return SessionRejected(detail=f"account {account.id} is not a deposit factory")
        tokens = await chain_store.list_contract_tokens(self._database, factory)
        if request.currency not in {token.symbol for token in tokens}:
            return SessionRejected(detail=f"deposits of {request.currency} cannot be detected")
        uuid = new_pay_uuid().bytes
        address = derive_deposit_address(factory.address, init_code_hash(factory.forwarder), uuid)
        stored_uuid = await deposits_store.add_address(
            self._database, request.session_id, account.id, uuid, address
        )
        action = self._make_action(account, request.session_id)
        return SessionCreated(reference=f"0x{stored_uuid.hex()}", next_action=action)

    async def inquire(self, account: GatewayAccount, session: GatewaySessionRef) -> SessionResult:
        del account
        deposits = await deposits_store.get_deposits(self._database, [session.session_id])
        if session.session_id not in deposits:
            return SessionReport(state=GatewaySessionState.ABSENT)
        return decide_deposit_session(deposits[session.session_id].evidence)

    async def check_account(self, account: GatewayAccount) -> AccountCheck:
        # `payintent doctor` compares each factory with its chain.
        factory = await chain_store.get_contract(self._database, account.id)
        address = to_checksum_address(factory.address) if factory else "no address"
        return AccountCheck(problem=None, detail=f"a deposit factory at {address}")
