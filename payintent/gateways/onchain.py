"""Stablecoins through our gateway contract: a gateway whose reports come from final blocks.

Nothing is called when a session opens, and nothing can be closed: the contract's deadline ends it.
The state of a session is read from the records that the watcher stores.
"""

from collections.abc import Mapping
from uuid import UUID

from payintent.domain import ids
from payintent.domain.gateway import (
    AccountCheck,
    CallbackAnswer,
    CallbackRequest,
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
    SessionCreated,
    SessionRejected,
    SessionReport,
    VerifiedCallback,
)
from payintent.domain.onchain import PROVIDER, OnchainRecords, decide_onchain_session
from payintent.domain.onchain_refund import (
    AUTOMATIC_GAS_MAX,
    GAS_MAX,
    AlreadyRefunded,
    ContractRefundCall,
    GasExceeded,
    OnchainRefundFacts,
    OnchainRefundSender,
    RefundTransactionState,
)
from payintent.domain.payment import FailureReason
from payintent.id_generator import new_pay_uuid

#: A transaction that no endpoint has seen for so long is sent again.
REVERTS_MAX = 3  # transactions of one refund; then an operator must look
_UNSEEN_S = 600.0
_NO_SENDERS: Mapping[str, OnchainRefundSender] = {}


class OnchainGateway:
    """Implements `Gateway` on the stored records; an account is one contract on one chain."""

    provider = PROVIDER
    capabilities = GatewayCapabilities(
        credentials=frozenset({"chain", "network_id"}),
        decimals=None,  # those of the token on its chain
        remote=False,
    )

    def __init__(
        self,
        ledger: OnchainRecords,
        api_base: str,
        refunders: Mapping[str, OnchainRefundSender] = _NO_SENDERS,
    ) -> None:
        self._ledger = ledger
        self._api_base = api_base
        self._refunders = refunders

    async def create_session(
        self, account: GatewayAccount, request: GatewaySessionRequest
    ) -> SessionCreated | SessionRejected | OutcomeUnknown:
        """Name a session on the chain by another random id, which reveals none of ours."""
        session_id = ids.format_id(ids.SESSION, request.session_id)
        action = {
            "type": "onchain_session",
            "onchain_session": {
                "session_id": session_id,
                "chain": account.credentials["chain"],
                "network_id": int(account.credentials["network_id"]),
                "url": f"{self._api_base}/onchain/sessions/{session_id}",
            },
        }
        return SessionCreated(reference=f"0x{new_pay_uuid().hex}", next_action=action)

    async def close_session(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionReport | OutcomeUnknown:
        return await self.inquire(account, session)

    async def inquire(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionReport | OutcomeUnknown:
        del account
        return await self._stands(session.session_id)

    def parse_callback(self, account: GatewayAccount, request: CallbackRequest) -> VerifiedCallback:
        del account, request
        raise InvalidCallbackError("a contract sends no callbacks")

    def acknowledge(self, callback: VerifiedCallback) -> CallbackAnswer:
        del callback
        return CallbackAnswer()

    async def refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundReport | OutcomeUnknown:
        """Have the refund signed and sent; it is done only when its log is final.

        The sender that is asked first sends this refund always, whatever the operator has set
        since: the contract does it once for each sender.
        """
        facts = await self._ledger.get_refund_facts(account.id, request)
        if facts is None:
            return _held_back("no receipt of this money is known")
        if facts.done_by is not None:
            return _done(facts.done_by)
        if facts.halted:
            return _held_back(f"{facts.chain} is halted")
        sender, refunder = facts.sender or facts.refunder, self._refunders.get(facts.chain)
        if sender is None or refunder is None:
            missing = "signer" if refunder is None else "refunder"
            return _held_back(f"no {missing} is set for {facts.chain}")
        call = _call(facts, request)
        if facts.sender is None and call.to in {sender, call.contract}:
            detail = "the contract gives back neither to itself nor to the sender"
            return RefundReport(state=GatewayRefundState.DECLINED, detail=detail)
        return await self._send(refunder, sender, call, facts)

    async def _estimate(
        self,
        refunder: OnchainRefundSender,
        sender: bytes,
        call: ContractRefundCall,
        facts: OnchainRefundFacts,
    ) -> int | AlreadyRefunded | RefundReport | NotContacted:
        """Return the gas limit of a refund; of an automatic one it is spent from the day's gas."""
        gas = await refunder.estimate(
            sender, call, AUTOMATIC_GAS_MAX if facts.automatic else GAS_MAX
        )
        if isinstance(gas, GasExceeded):
            return _too_costly(facts, f"it needs {gas.gas} gas")
        if not facts.automatic or not isinstance(gas, int):
            return gas
        if not await self._ledger.spend_automatic_gas(facts.chain, gas):
            return _too_costly(facts, f"the gas of the day is used up on {facts.chain}")
        return gas

    async def _send(
        self,
        refunder: OnchainRefundSender,
        sender: bytes,
        call: ContractRefundCall,
        facts: OnchainRefundFacts,
    ) -> RefundReport | OutcomeUnknown:
        """Send a refund if possible; the request is stored before the signer is asked."""
        gas = await self._estimate(refunder, sender, call, facts)
        if isinstance(gas, RefundReport | NotContacted):
            return gas
        refund_id = UUID(bytes=call.refund_id)
        if not await self._ledger.claim_for_sender(refund_id, sender):
            return _held_back("another sender was asked a moment ago")
        if isinstance(gas, AlreadyRefunded):
            return RefundReport(state=GatewayRefundState.PENDING)  # its log is not final yet
        tx_hash = await refunder.send(sender, call, gas)
        if isinstance(tx_hash, OutcomeUnknown):
            return tx_hash
        await self._ledger.set_transaction_hash(refund_id, tx_hash)
        return RefundReport(state=GatewayRefundState.PENDING, reference=f"0x{tx_hash.hex()}")

    async def inquire_refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundReport | OutcomeUnknown:
        """Report whether the refund is final on its chain, may still become so, or has to be sent.

        Only a final log proves that it is done. To call it absent too early costs a transaction
        that the contract reverts, and no money.
        """
        facts = await self._ledger.get_refund_facts(account.id, request)
        if facts is None:
            return OutcomeUnknown(detail="no receipt of this money is known", neutral=True)
        if facts.done_by is not None:
            return _done(facts.done_by)
        if facts.sender is None:
            return RefundReport(state=GatewayRefundState.ABSENT, detail="no signer was asked")
        refunder = self._refunders.get(facts.chain)
        if refunder is None:
            return OutcomeUnknown(detail=f"no signer is set for {facts.chain}", neutral=True)
        fate = await refunder.trace(
            facts.sender, _call(facts, request), facts.tx_hash, facts.read_up_to
        )
        if fate is RefundTransactionState.REVERTED and facts.tx_hash is not None:
            return await self._reverted(request.refund_id, facts.tx_hash)
        return fate if isinstance(fate, OutcomeUnknown) else _read(fate, facts)

    async def _reverted(self, refund_id: UUID, tx_hash: bytes) -> RefundReport:
        """Count the revert; after `REVERTS_MAX` of them another try would only cost gas."""
        reverts = await self._ledger.note_reverted(refund_id, tx_hash)
        return RefundReport(
            state=GatewayRefundState.ABSENT,
            detail=f"its transaction was reverted, for time {reverts}",
            hopeless=reverts >= REVERTS_MAX,
        )

    def classify_failure(self, code: str) -> FailureReason:
        reasons = set(FailureReason)
        return FailureReason(code) if code in reasons else FailureReason.UNKNOWN

    async def check_account(self, account: GatewayAccount) -> AccountCheck:
        """Ask nobody: `payintent doctor` compares each contract with its chain."""
        chain = account.credentials["chain"]
        return AccountCheck(
            problem=None, detail=f"a contract on {chain}, which payintent doctor examines"
        )

    async def _stands(self, session_id: UUID) -> SessionReport:
        evidence = await self._ledger.evidence(session_id)
        return (
            decide_onchain_session(evidence)
            if evidence
            else SessionReport(state=GatewaySessionState.ABSENT)
        )


def _call(facts: OnchainRefundFacts, request: GatewayRefundRequest) -> ContractRefundCall:
    destination = request.destination
    to = facts.payer if destination is None else bytes.fromhex(destination.removeprefix("0x"))
    if to is None:
        raise ValueError(f"refund {request.refund_id} has no address to go to")
    return ContractRefundCall(
        network_id=facts.network_id,
        contract=facts.contract,
        uuid=facts.uuid,
        refund_id=request.refund_id.bytes,
        token=facts.token,
        to=to,
        amount=request.amount_minor,
    )


def _too_costly(facts: OnchainRefundFacts, detail: str) -> RefundReport | NotContacted:
    """End an automatic refund that was never sent, so that a person decides on its case.

    One that was sent before waits: its transaction may still be mined, and a person's refund of
    the same money would be a second one.
    """
    if facts.automatic and facts.sender is None:
        return RefundReport(state=GatewayRefundState.DECLINED, detail=f"not sent: {detail}")
    return _held_back(detail)


def _held_back(detail: str) -> NotContacted:
    """Return that we ourselves sent nothing: no outage of signer or chain."""
    return NotContacted(detail=detail, neutral=True)


def _done(tx_hash: bytes) -> RefundReport:
    return RefundReport(state=GatewayRefundState.DONE, reference=f"0x{tx_hash.hex()}")


def _read(fate: RefundTransactionState, facts: OnchainRefundFacts) -> RefundReport:
    if fate is RefundTransactionState.REVERTED:
        return RefundReport(state=GatewayRefundState.ABSENT, detail="its transaction was reverted")
    if fate is RefundTransactionState.UNSEEN and facts.asked_s >= _UNSEEN_S:
        return RefundReport(state=GatewayRefundState.ABSENT, detail="its transaction was lost")
    return RefundReport(state=GatewayRefundState.PENDING)
