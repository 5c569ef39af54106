"""Builds views of chains and on-chain sessions, including the contract calls for wallets."""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from payintent.chains import store as chain_store
from payintent.chains.store import (
    DEPOSIT_PROVIDER,
    PROVIDER,
    TEST_CHAIN,
    TEST_DEPOSIT_PROVIDER,
    TEST_FACTORY,
    ChainCursor,
    ChainRecord,
    DeployedContract,
    TokenRecord,
)
from payintent.core import ids
from payintent.core.errors import ErrorCode, NotFoundError, RefusedError
from payintent.db.database import Database
from payintent.evm import abi
from payintent.evm.abi import to_checksum_address
from payintent.evm.event_logs import VERSION, load_compiled_contract, select_public_abi
from payintent.evm.port import NATIVE
from payintent.onchain import pending_deposits_store, pending_store
from payintent.onchain.deposit_views import (
    build_deposit_fields,
    build_factory_fields,
    describe_deposit_status,
)
from payintent.onchain.pending_deposits_store import ReceivedAmounts
from payintent.onchain.pending_store import SessionTransaction
from payintent.payments import sessions_store as session_store
from payintent.payments import store as payment_store
from payintent.payments.model import TERMINAL, Payment, PaymentStatus, Session, SessionStatus
from payintent.runtime.encryption import Encryption
from payintent.runtime.json_format import format_timestamp

#: Providers whose sessions can be read by wallets.
ON_CHAIN_PROVIDERS = {PROVIDER, DEPOSIT_PROVIDER, TEST_DEPOSIT_PROVIDER}
_HANDOFF_VALIDITY = timedelta(minutes=15)
_ID_BYTES, _TIME_BYTES, _SIGNATURE_BYTES = 16, 5, 15  # 48 base64 characters
_CONTEXT = "wallet-handoff:"


@dataclass(frozen=True, slots=True)
class WalletHandoff:
    encryption: Encryption
    checkout_base: str

    def build_link(self, session_id: UUID, now: datetime) -> str | None:
        """Return a link that opens MetaMask's browser, or None if the checkout has no URL."""
        _, separator, address = self.checkout_base.partition("://")
        if not separator:
            return None
        code = self.create_code(session_id, now)
        return f"https://link.metamask.io/dapp/{address}/wallet/open/{code}"

    def create_code(self, session_id: UUID, now: datetime) -> str:
        expires_at_s = int((now + _HANDOFF_VALIDITY).timestamp())
        payload = session_id.bytes + expires_at_s.to_bytes(_TIME_BYTES)
        return urlsafe_b64encode(payload + self._compute_signature(payload)).decode()

    def parse_code(self, code: str, now: datetime) -> UUID | None:
        """Return the session id, or None if the code is invalid or has expired."""
        try:
            signed_payload = urlsafe_b64decode(code)
        except ValueError:
            return None
        payload, signature = signed_payload[:-_SIGNATURE_BYTES], signed_payload[-_SIGNATURE_BYTES:]
        if not hmac.compare_digest(self._compute_signature(payload), signature):
            return None
        expires_at_s = int.from_bytes(payload[_ID_BYTES:])
        is_valid = now.astimezone(UTC).timestamp() < expires_at_s
        return UUID(bytes=payload[:_ID_BYTES]) if is_valid else None

    def _compute_signature(self, payload: bytes) -> bytes:
        return self.encryption.digest(_CONTEXT + payload.hex())[:_SIGNATURE_BYTES]


#: Payment is not offered in this period before the deadline, because mining takes time.
_PAYMENT_CUTOFF = timedelta(seconds=60)
_PAYER = "{payer}"  # the browser replaces it with 40 hex digits
_PAYER_WORD = "000000000000000000000000" + _PAYER


@dataclass(frozen=True, slots=True, kw_only=True)
class _Snapshot:
    payment: Payment
    session: Session
    contract: DeployedContract
    chain: ChainRecord
    token: TokenRecord
    cursor: ChainCursor | None
    transactions: Sequence[SessionTransaction]
    now: datetime


async def get_chain_view(database: Database, slug: str) -> dict[str, Any]:
    """Return the response of `GET /chains/{slug}`. Raises `NOT_FOUND` if the chain is unknown."""
    chain = await chain_store.get_chain(database, slug)
    if chain is None:
        raise NotFoundError("no such chain")
    is_test = slug == TEST_CHAIN
    contract = await chain_store.get_offered_contract(database, slug)
    cursor = await chain_store.get_cursor(database, slug)
    tokens = await chain_store.list_tokens(database, slug)
    fields: dict[str, Any] = {
        "slug": chain.slug,
        "name": chain.name,
        "network_id": chain.network_id,
        "status": "active" if is_test else _describe_chain_status(cursor),
    }
    if contract is not None:
        fields |= {
            "contract_address": to_checksum_address(contract.address),
            "contract_version": VERSION,
            "contract_abi": select_public_abi(),
            "pay_function": {"signature": abi.PAY_SIGNATURE, "selector": f"0x{abi.PAY.hex()}"},
            "event_topics": _read_event_topics(),
        }
    factories = [TEST_FACTORY] if is_test else await chain_store.list_factories(database, slug)
    return fields | {
        "deposits": next(
            (
                build_factory_fields(factory)
                for factory in reversed(factories)
                if factory.current and factory.merchant_id is None
            ),
            None,
        ),
        "native_currency": _currency_fields(chain, chain.coin_symbol),
        "tokens": [
            _token_fields(token) | {"min_amount_smallest_unit": f"{token.minimum:f}"}
            for token in tokens
            if token.enabled and token.address is not None
        ],
        "finality": {"mode": chain.finality, "typical_seconds": chain.typical_s},
        "block_time_seconds": chain.block_time_ms / 1000,
        "wallet_chain": _build_wallet_chain(chain),
        "updated_at": format_timestamp(chain.updated_at),
    }


async def get_session_view(
    database: Database, session_id: UUID | None, handoff: WalletHandoff
) -> dict[str, Any]:
    """Return the response of `GET /onchain/sessions/{session_id}`.

    Raises `NOT_FOUND` for an unknown session, and `SESSION_GONE` if it has ended or been replaced.
    """
    snapshot = await _load_snapshot(database, session_id)
    uuid = bytes.fromhex((snapshot.session.reference or "")[2:])
    fields: dict[str, Any] = {
        "id": ids.format_id(ids.SESSION, snapshot.session.id),
        "pay_uuid": f"0x{uuid.hex()}",
        "amount": snapshot.session.quote.price.total_amount,
        "amount_smallest_unit": str(snapshot.session.quote.total_minor),
        "token": _token_fields(snapshot.token),
        "chain": {
            "slug": snapshot.chain.slug,
            "network_id": snapshot.chain.network_id,
            "name": snapshot.chain.name,
            "wallet_chain": _build_wallet_chain(snapshot.chain),
        },
        "deadline": int(snapshot.payment.expires_at.timestamp()),
        "expires_at": format_timestamp(snapshot.payment.expires_at),
    }
    if snapshot.contract.forwarder is not None:
        return fields | await _build_deposit_view(database, snapshot)
    return fields | _build_contract_view(snapshot, uuid, handoff)


def _build_contract_view(
    snapshot: _Snapshot, uuid: bytes, handoff: WalletHandoff
) -> dict[str, Any]:
    amount = snapshot.session.quote.total_minor
    deadline = int(snapshot.payment.expires_at.timestamp())
    return {
        "status": _describe_status(snapshot),
        **_payability_fields(snapshot),
        "contract_address": to_checksum_address(snapshot.contract.address),
        "receiver": to_checksum_address(snapshot.contract.receiver),
        "steps": _build_steps(snapshot, uuid, amount, deadline),
        "checks": _build_checks(snapshot, uuid, amount),
        "links": _build_links(snapshot, uuid, handoff),
        "confirmations": _confirmation_fields(snapshot),
        "transactions": [
            {
                "tx_hash": f"0x{transaction.tx_hash.hex()}",
                "step": transaction.step,
                "state": transaction.state,
            }
            for transaction in snapshot.transactions
        ],
    }


async def _build_deposit_view(database: Database, snapshot: _Snapshot) -> dict[str, Any]:
    session, token = snapshot.session, snapshot.token
    address = token.address or b""
    if session.quote.provider == TEST_DEPOSIT_PROVIDER:
        transfers = await pending_deposits_store.list_test_transfers(database, session.id)
        received = sum(transfer.amount for transfer in transfers if transfer.token == address)
        amounts = ReceivedAmounts(received, 0)
    else:
        transfers = await pending_deposits_store.list_session_transfers(database, session.id)
        amounts = await pending_deposits_store.sum_session_transfers(database, session.id, address)
    status = describe_deposit_status(amounts, session.quote.total_minor)
    snapshot = replace(snapshot, transactions=[])  # a partial payment can still be completed
    return {
        "status": status,
        **_payability_fields(snapshot),
        **build_deposit_fields(
            session, token, snapshot.chain.network_id, snapshot.contract, amounts, transfers
        ),
        "confirmations": _confirmation_fields(snapshot),
    }


async def find_open_session(database: Database, session_id: UUID | None) -> Session:
    """Return a session that accepts posted transactions.

    Raises the same errors as `get_session_view`.
    """
    return (await _load_snapshot(database, session_id)).session


async def _load_snapshot(database: Database, session_id: UUID | None) -> _Snapshot:
    session = await session_store.get(database, session_id) if session_id else None
    if session is None or session.quote.provider not in ON_CHAIN_PROVIDERS:
        raise NotFoundError("no such on-chain session")
    payment_snapshot = await payment_store.get(database, session.payment_id)
    assert payment_snapshot is not None  # noqa: S101 - a session has a payment
    has_ended = session.status is SessionStatus.ENDED or payment_snapshot.payment.status in TERMINAL
    if has_ended or payment_snapshot.payment.session_id != session.id:
        raise RefusedError(ErrorCode.SESSION_GONE, "this session has ended")
    contract = (
        TEST_FACTORY
        if session.quote.provider == TEST_DEPOSIT_PROVIDER
        else await chain_store.get_contract(database, session.quote.account_id)
    )
    chain = await chain_store.get_chain(database, session.quote.chain or "")
    token = await chain_store.get_session_token(database, session.id)
    if contract is None or chain is None or token is None or session.reference is None:
        raise RefusedError(ErrorCode.SESSION_GONE, "this session can no longer be paid")
    return _Snapshot(
        payment=payment_snapshot.payment,
        session=session,
        contract=contract,
        chain=chain,
        token=token,
        cursor=await chain_store.get_cursor(database, chain.slug),
        transactions=await pending_store.list_session_transactions(database, session.id),
        now=payment_snapshot.now,
    )


def _payability_fields(snapshot: _Snapshot) -> dict[str, Any]:
    reason = _find_unpayable_reason(snapshot)
    return {"payable": True} if reason is None else {"payable": False, "unpayable_reason": reason}


def _find_unpayable_reason(snapshot: _Snapshot) -> str | None:
    if (
        snapshot.payment.status is not PaymentStatus.PROCESSING
        or snapshot.session.status is not SessionStatus.OPEN
    ):
        return "closing"
    if any(transaction.exact for transaction in snapshot.transactions):
        return "payment_seen"
    if snapshot.now >= snapshot.payment.expires_at - _PAYMENT_CUTOFF:
        return "deadline_near"
    if snapshot.cursor is not None and snapshot.cursor.halted:
        return "chain_halted"
    is_watched = snapshot.chain.slug == TEST_CHAIN or (
        snapshot.cursor is not None and snapshot.cursor.watched
    )
    return None if is_watched else "chain_not_watched"


def _describe_status(snapshot: _Snapshot) -> str:
    if any(transaction.exact for transaction in snapshot.transactions):
        return "confirming" if _count_confirmations(snapshot) > 1 else "detected"
    if any(transaction.state == "mismatch" for transaction in snapshot.transactions):
        return "mismatch"
    unconfirmed_states = {"unknown", "pending", "mined"}
    has_posted = any(
        transaction.step == "pay" and transaction.state in unconfirmed_states
        for transaction in snapshot.transactions
    )
    return "submitted" if has_posted else "awaiting_payment"


def _count_confirmations(snapshot: _Snapshot) -> int:
    """Return how many confirmations an exact pending transfer has, including its own block."""
    blocks = [
        transaction.block
        for transaction in snapshot.transactions
        if transaction.exact and transaction.block is not None
    ]
    head = snapshot.cursor.head if snapshot.cursor else None
    return max(0, head - max(blocks) + 1) if blocks and head is not None else 0


def _confirmation_fields(snapshot: _Snapshot) -> dict[str, Any]:
    confirmations = _count_confirmations(snapshot)
    elapsed_s = confirmations * snapshot.chain.block_time_ms / 1000
    by_count = snapshot.chain.finality == "confirmations"
    return {
        "mode": snapshot.chain.finality,
        "seen": confirmations,
        "needed": snapshot.chain.confirmations if by_count else None,
        "eta_seconds": max(0, round(snapshot.chain.typical_s - elapsed_s)),
    }


def _build_steps(
    snapshot: _Snapshot, uuid: bytes, amount: int, deadline: int
) -> list[dict[str, Any]]:
    """Return the transactions to send, each with the condition under which it is needed."""
    token, contract = snapshot.token, snapshot.contract.address
    steps: list[dict[str, Any]] = []
    if not token.native:
        if token.approve_zero_first:
            steps.append(
                _build_approval("approve_reset", "allowance_nonzero_lt_amount", snapshot, 0)
            )
        steps.append(_build_approval("approve", "allowance_lt_amount", snapshot, amount))
    address = token.address or NATIVE
    steps.append(
        {
            "kind": "pay",
            "when": "always",
            "to": to_checksum_address(contract),
            "value": hex(amount if token.native else 0),
            "data": f"0x{abi.encode_pay(uuid, address, amount, deadline).hex()}",
            "function": abi.PAY_SIGNATURE,
            "args": [
                {"name": "uuid", "type": "bytes16", "value": f"0x{uuid.hex()}"},
                {"name": "token", "type": "address", "value": to_checksum_address(address)},
                {"name": "amount", "type": "uint256", "value": str(amount)},
                {"name": "deadline", "type": "uint256", "value": str(deadline)},
            ],
        }
    )
    return steps


def _build_approval(kind: str, when: str, snapshot: _Snapshot, amount: int) -> dict[str, Any]:
    return {
        "kind": kind,
        "when": when,
        "to": to_checksum_address(snapshot.token.address or NATIVE),
        "value": "0x0",
        "data": f"0x{abi.encode_approve(snapshot.contract.address, amount).hex()}",
    }


def _build_checks(snapshot: _Snapshot, uuid: bytes, amount: int) -> dict[str, Any]:
    """Return calls that check balance, allowance and payment status. See `_PAYER`."""
    address = snapshot.token.address or NATIVE
    is_paid_call = _make_call(
        snapshot.contract.address, abi.encode_is_paid(uuid, address, amount).hex()
    )
    if snapshot.token.native:
        return {"balance": {"method": "eth_getBalance"}, "already_paid": is_paid_call}
    spender = snapshot.contract.address.hex().rjust(64, "0")
    return {
        "balance": _make_call(address, f"{abi.BALANCE_OF.hex()}{_PAYER_WORD}"),
        "allowance": _make_call(address, f"{abi.ALLOWANCE.hex()}{_PAYER_WORD}{spender}"),
        "already_paid": is_paid_call,
    }


def _make_call(contract: bytes, data: str) -> dict[str, str]:
    return {"to": to_checksum_address(contract), "data": f"0x{data}"}


def _build_links(snapshot: _Snapshot, uuid: bytes, handoff: WalletHandoff) -> dict[str, str]:
    """Return links that open wallets.

    An EIP-681 URL describes a single call, but a token payment also needs an approval.
    """
    metamask = handoff.build_link(snapshot.session.id, snapshot.now)
    links = {} if metamask is None else {"metamask": metamask}
    if snapshot.token.native:
        links["eip681"] = _build_eip681_url(snapshot, uuid)
    return links


def _build_eip681_url(snapshot: _Snapshot, uuid: bytes) -> str:
    """Return the contract call as an EIP-681 URL."""
    amount = snapshot.session.quote.total_minor
    deadline = int(snapshot.payment.expires_at.timestamp())
    contract = to_checksum_address(snapshot.contract.address)
    token = to_checksum_address(snapshot.token.address or NATIVE)
    return (
        f"ethereum:{contract}@{snapshot.chain.network_id}/pay?bytes16=0x{uuid.hex()}"
        f"&address={token}&uint256={amount}&uint256={deadline}&value={amount}"
    )


def _token_fields(token: TokenRecord) -> dict[str, Any]:
    address = None if token.native or token.address is None else to_checksum_address(token.address)
    return {
        "symbol": token.symbol,
        "address": address,
        "decimals": token.decimals,
        "native": token.native,
        "approve_zero_first": token.approve_zero_first,
    }


def _currency_fields(chain: ChainRecord, symbol: str) -> dict[str, Any]:
    return {"name": chain.coin_name, "symbol": symbol, "decimals": 18}


def _build_wallet_chain(chain: ChainRecord) -> dict[str, Any]:
    """Return the parameter of `wallet_addEthereumChain` (EIP-3085)."""
    fields: dict[str, Any] = {
        "chainId": hex(chain.network_id),
        "chainName": chain.name,
        "nativeCurrency": _currency_fields(chain, chain.wallet_symbol),
    }
    # Wallets reject an empty list.
    if chain.public_rpc_urls:
        fields["rpcUrls"] = list(chain.public_rpc_urls)
    if chain.explorer_urls:
        fields["blockExplorerUrls"] = list(chain.explorer_urls)
    return fields


def _read_event_topics() -> Mapping[str, str]:
    topics: dict[str, str] = load_compiled_contract()["topics"]
    return {name.partition("(")[0]: topic for name, topic in topics.items()}


def _describe_chain_status(cursor: ChainCursor | None) -> str:
    if cursor is not None and cursor.halted:
        return "halted"
    return "active" if cursor is not None and cursor.watched else "degraded"
