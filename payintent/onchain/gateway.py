"""The gateway adapter for payments through our gateway contract.

Creating a session does not make a network request. A session cannot be closed, and ends at the
contract's deadline. Its state is read from the records that the chain watcher stores.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from payintent.chains import watch_store as chain_watch_store
from payintent.chains.store import PROVIDER
from payintent.core import ids
from payintent.db.database import Database
from payintent.evm.port import (
    GAS_MAX,
    AlreadyRefunded,
    ContractRefundCall,
    GasExceeded,
    RefundTransactionState,
)
from payintent.evm.refund_sender import RpcRefundSender
from payintent.gateways.port import (
    AccountCheck,
    CallbackRequest,
    CallbackResponse,
    CreationResult,
    FailureReason,
    GatewayAccount,
    GatewayCapabilities,
    GatewayRefundRequest,
    GatewayRefundState,
    GatewaySessionRef,
    GatewaySessionRequest,
    GatewaySessionState,
    InvalidCallbackError,
    NotContacted,
    OutcomeUnknown,
    RefundReport,
    RefundResult,
    SessionCreated,
    SessionReport,
    SessionResult,
    VerifiedCallback,
)
from payintent.onchain import refund_logs_store as refund_log_store
from payintent.onchain import transfers_store as transfer_store
from payintent.onchain.refund_logs_store import OnchainRefundFacts
from payintent.onchain.settlement_rules import decide_onchain_session
from payintent.runtime.id_generator import new_pay_uuid

#: Limits our gas costs if dust comes from a contract that uses much gas to receive a refund.
_AUTOMATIC_GAS_MAX = 150_000
REVERTS_MAX = 3  # a refund with this many reverts needs manual review
#: After this time, a transaction that no endpoint knows is sent again.
_UNKNOWN_S = 600.0
_NO_SENDERS: Mapping[str, RpcRefundSender] = {}


class OnchainGateway:
    """Each gateway account is a contract on a chain."""

    provider = PROVIDER
    capabilities = GatewayCapabilities(
        credentials=frozenset({"chain", "network_id"}),
        decimals=None,  # depends on the token
        remote=False,
    )

    def __init__(
        self,
        database: Database,
        api_base: str,
        refund_senders: Mapping[str, RpcRefundSender] = _NO_SENDERS,
    ) -> None:
        self._database = database
        self._api_base = api_base
        self._refund_senders = refund_senders

    async def create_session(
        self, account: GatewayAccount, request: GatewaySessionRequest
    ) -> CreationResult:
        """Assign a random on-chain id to the session, so that internal ids are not revealed."""
        action = self._make_action(account, request.session_id)
        return SessionCreated(reference=f"0x{new_pay_uuid().hex}", next_action=action)

    def _make_action(self, account: GatewayAccount, session_id: UUID) -> dict[str, Any]:
        public_id = ids.format_id(ids.SESSION, session_id)
        return {
            "type": "onchain_session",
            "onchain_session": {
                "session_id": public_id,
                "chain": account.credentials["chain"],
                "network_id": int(account.credentials["network_id"]),
                "url": f"{self._api_base}/onchain/sessions/{public_id}",
            },
        }

    async def close_session(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionResult:
        return await self.inquire(account, session)

    async def inquire(self, account: GatewayAccount, session: GatewaySessionRef) -> SessionResult:
        del account
        evidence = await transfer_store.get_evidence(self._database, session.session_id)
        if evidence is None:
            return SessionReport(state=GatewaySessionState.ABSENT)
        return decide_onchain_session(evidence)

    def parse_callback(self, account: GatewayAccount, request: CallbackRequest) -> VerifiedCallback:
        del account, request
        raise InvalidCallbackError("contracts do not send callbacks")

    def acknowledge(self, callback: VerifiedCallback) -> CallbackResponse:
        del callback
        return CallbackResponse()

    async def refund(self, account: GatewayAccount, request: GatewayRefundRequest) -> RefundResult:
        """Sign and send the refund. It succeeds when its log is final.

        The contract executes a refund only once per sender, so retries use the first sender, even
        if the operator has since configured a different sender.
        """
        facts = await refund_log_store.get_refund_facts(self._database, account.id, request)
        if facts is None:
            return _not_sent("no transfer is recorded for this capture")
        if facts.final_tx_hash is not None:
            return _succeeded(facts.final_tx_hash)
        if facts.halted:
            return _not_sent(f"{facts.chain} is halted")
        sender, refunder = facts.sender or facts.refunder, self._refund_senders.get(facts.chain)
        if sender is None or refunder is None:
            missing = "signer" if refunder is None else "refunder"
            return _not_sent(f"no {missing} is configured for {facts.chain}")
        call = _build_call(facts, request)
        if facts.sender is None and call.to in {sender, call.contract}:
            detail = "the contract cannot refund to itself or to the sender"
            return RefundReport(state=GatewayRefundState.DECLINED, detail=detail)
        return await self._send(refunder, sender, call, facts)

    async def _estimate_and_reserve_gas(
        self,
        refunder: RpcRefundSender,
        sender: bytes,
        call: ContractRefundCall,
        facts: OnchainRefundFacts,
    ) -> int | AlreadyRefunded | RefundReport | NotContacted:
        """Return the gas limit, and deduct an automatic refund's gas from the daily budget."""
        gas = await refunder.signer.estimate(
            sender, call, _AUTOMATIC_GAS_MAX if facts.automatic else GAS_MAX
        )
        if isinstance(gas, GasExceeded):
            return _decline_or_hold(facts, f"the refund needs {gas.gas} gas")
        if not facts.automatic or not isinstance(gas, int):
            return gas
        if not await chain_watch_store.reserve_gas(self._database, facts.chain, gas):
            return _decline_or_hold(facts, f"the daily gas budget on {facts.chain} is used up")
        return gas

    async def _send(
        self,
        refunder: RpcRefundSender,
        sender: bytes,
        call: ContractRefundCall,
        facts: OnchainRefundFacts,
    ) -> RefundResult:
        """Send a refund. The attempt is stored before the signer is called."""
        gas = await self._estimate_and_reserve_gas(refunder, sender, call, facts)
        if isinstance(gas, RefundReport | NotContacted):
            return gas
        refund_id = UUID(bytes=call.refund_id)
        if not await refund_log_store.claim_for_sender(self._database, refund_id, sender):
            return _not_sent("another sender has just claimed this refund")
        if isinstance(gas, AlreadyRefunded):
            return RefundReport(state=GatewayRefundState.PENDING)  # its log is not final yet
        tx_hash = await refunder.signer.send(sender, call, gas)
        if isinstance(tx_hash, OutcomeUnknown):
            return tx_hash
        await refund_log_store.set_transaction_hash(self._database, refund_id, tx_hash)
        return RefundReport(state=GatewayRefundState.PENDING, reference=f"0x{tx_hash.hex()}")

    async def inquire_refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundResult:
        """Report whether the refund is final, is pending or must be sent.

        Only a final log proves success. If a refund is reported absent too early, the contract
        reverts the second transaction, so only its gas is lost.
        """
        facts = await refund_log_store.get_refund_facts(self._database, account.id, request)
        if facts is None:
            return OutcomeUnknown(
                detail="no transfer is recorded for this capture", is_skipped=True
            )
        if facts.final_tx_hash is not None:
            return _succeeded(facts.final_tx_hash)
        if facts.sender is None:
            return RefundReport(state=GatewayRefundState.ABSENT, detail="no signer was called")
        refunder = self._refund_senders.get(facts.chain)
        if refunder is None:
            return OutcomeUnknown(
                detail=f"no signer is configured for {facts.chain}", is_skipped=True
            )
        state = await refunder.trace(
            facts.sender, _build_call(facts, request), facts.last_tx_hash, facts.last_final_block
        )
        if state is RefundTransactionState.REVERTED and facts.last_tx_hash is not None:
            return await self._report_revert(request.refund_id, facts.last_tx_hash)
        return state if isinstance(state, OutcomeUnknown) else _report_state(state, facts)

    async def _report_revert(self, refund_id: UUID, tx_hash: bytes) -> RefundReport:
        """Count the revert. After `REVERTS_MAX` reverts, the refund is not retried."""
        reverts = await refund_log_store.count_revert(self._database, refund_id, tx_hash)
        return RefundReport(
            state=GatewayRefundState.ABSENT,
            detail=f"the transaction was reverted (revert {reverts})",
            needs_operator=reverts >= REVERTS_MAX,
        )

    def classify_failure(self, code: str) -> FailureReason:
        reasons = set(FailureReason)
        return FailureReason(code) if code in reasons else FailureReason.UNKNOWN

    async def check_account(self, account: GatewayAccount) -> AccountCheck:
        chain = account.credentials["chain"]
        return AccountCheck(
            problem=None, detail=f"a contract on {chain}; `payintent doctor` checks it"
        )


def _build_call(facts: OnchainRefundFacts, request: GatewayRefundRequest) -> ContractRefundCall:
    destination = request.destination
    to = facts.payer if destination is None else bytes.fromhex(destination.removeprefix("0x"))
    if to is None:
        raise ValueError(f"refund {request.refund_id} has no destination")
    return ContractRefundCall(
        network_id=facts.network_id,
        contract=facts.contract,
        uuid=facts.uuid,
        refund_id=request.refund_id.bytes,
        token=facts.token,
        to=to,
        amount=request.amount_minor,
    )


def _decline_or_hold(facts: OnchainRefundFacts, detail: str) -> RefundReport | NotContacted:
    """Decline an automatic refund that was never sent; hold back any other refund.

    An operator decides on the case of a declined refund. A refund that was sent before is not
    declined: its transaction may still be mined, so the operator could refund the money twice.
    """
    if facts.automatic and facts.sender is None:
        return RefundReport(state=GatewayRefundState.DECLINED, detail=f"not sent: {detail}")
    return _not_sent(detail)


def _not_sent(detail: str) -> NotContacted:
    """Report that nothing was sent, without counting it as a signer or chain outage."""
    return NotContacted(detail=detail, is_skipped=True)


def _succeeded(tx_hash: bytes) -> RefundReport:
    return RefundReport(state=GatewayRefundState.DONE, reference=f"0x{tx_hash.hex()}")


def _report_state(state: RefundTransactionState, facts: OnchainRefundFacts) -> RefundReport:
    if state is RefundTransactionState.REVERTED:
        return RefundReport(state=GatewayRefundState.ABSENT, detail="the transaction was reverted")
    if state is RefundTransactionState.UNKNOWN and facts.attempt_age_s >= _UNKNOWN_S:
        return RefundReport(state=GatewayRefundState.ABSENT, detail="the transaction was lost")
    return RefundReport(state=GatewayRefundState.PENDING)
