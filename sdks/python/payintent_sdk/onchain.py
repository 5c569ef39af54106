"""Chains and on-chain sessions, whose routes do not require an API key."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

Json = dict[str, Any]  # parameters for the wallet; pass them on unchanged


@dataclass(frozen=True, kw_only=True)
class DepositFactory:
    """The contract that derives deposit addresses."""

    factory_address: str
    forwarder_address: str
    init_code_hash: str
    receiver: str


@dataclass(frozen=True, kw_only=True)
class ChainFinality:
    """How the chain's blocks become final."""

    mode: str  # finalized, confirmations
    typical_seconds: int


@dataclass(frozen=True, kw_only=True)
class ChainToken:
    """A token that is accepted on a chain. The native coin has no address."""

    symbol: str
    decimals: int
    native: bool
    approve_zero_first: bool
    min_amount_smallest_unit: str
    address: str | None = None


@dataclass(frozen=True, kw_only=True)
class Chain:
    """A chain, its payment contract, its deposit factory and its tokens."""

    slug: str
    name: str
    network_id: int
    status: str  # active, degraded, halted
    native_currency: Json
    tokens: list[ChainToken]
    finality: ChainFinality
    block_time_seconds: float
    wallet_chain: Json
    updated_at: datetime
    deposits: DepositFactory | None = None
    contract_address: str | None = None
    contract_version: int | None = None
    contract_abi: list[Json] | None = None
    pay_function: Json | None = None
    event_topics: Json | None = None


@dataclass(frozen=True, kw_only=True)
class DepositAmount:
    """An amount in the session's token."""

    amount: str
    amount_smallest_unit: str


@dataclass(frozen=True, kw_only=True)
class SessionToken:
    """A session's token. The native coin has no address."""

    symbol: str
    decimals: int
    native: bool
    approve_zero_first: bool
    address: str | None = None


@dataclass(frozen=True, kw_only=True)
class SessionChain:
    """The chain of a session."""

    slug: str
    network_id: int
    name: str
    wallet_chain: Json


@dataclass(frozen=True, kw_only=True)
class SessionTransaction:
    """A transaction that was posted or detected. Only deposits have an amount."""

    tx_hash: str
    step: str  # approve, pay, deposit
    state: str  # unknown, pending, mined, reverted, foreign, duplicate, sighted, mismatch, final
    amount_smallest_unit: str | None = None


@dataclass(frozen=True, kw_only=True)
class Confirmations:
    """The number of blocks since the payment, and the number required for finality."""

    mode: str
    seen: int
    eta_seconds: int
    needed: int | None = None


@dataclass(frozen=True, kw_only=True)
class WalletLinks:
    """Links that open wallets."""

    metamask: str | None = None
    eip681: str | None = None


@dataclass(frozen=True, kw_only=True)
class OnchainSession:
    """An on-chain payment. Only deposit sessions have `deposit_address` and the fields below it."""

    id: str
    status: str  # awaiting_payment, submitted, detected, confirming, mismatch, partial
    payable: bool
    pay_uuid: str
    amount: str
    amount_smallest_unit: str
    token: SessionToken
    chain: SessionChain
    receiver: str
    deadline: int
    expires_at: datetime
    links: WalletLinks
    confirmations: Confirmations
    transactions: list[SessionTransaction]
    unpayable_reason: str | None = None
    contract_address: str | None = None
    steps: list[Json] | None = None
    checks: Json | None = None
    deposit_address: str | None = None
    factory_address: str | None = None
    forwarder_address: str | None = None
    init_code_hash: str | None = None
    received: DepositAmount | None = None
    pending: DepositAmount | None = None
    remaining: DepositAmount | None = None
