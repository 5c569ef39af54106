"""Store chains, tokens, our contracts and chain cursors."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from payintent.chains.watch_store import CURRENT_TIME_SOURCE, END_OF_WATCH
from payintent.db.database import Executor, Tx

PROVIDER = "gateway_contract"
DEPOSIT_PROVIDER = "onchain"
#: The provider and the chain of test payments to an address. Nothing is deployed on this chain.
TEST_DEPOSIT_PROVIDER = "test_onchain"
TEST_CHAIN, TEST_NETWORK_ID = "test", 2**31 - 1
_CONTRACTS_MAX = 1_000
_TOKENS_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainRecord:
    """A chain and its configuration."""

    slug: str
    name: str
    network_id: int
    finality: str
    confirmations: int | None
    instant_finality: bool
    grace_s: int
    typical_s: int
    block_time_ms: int
    coin_symbol: str
    coin_name: str
    wallet_symbol: str
    public_rpc_urls: Sequence[str]
    explorer_urls: Sequence[str]
    refunders: Sequence[bytes]  # refund senders; the last is current
    refund_approval_above: Decimal  # in tokens; refunds above it need approval
    auto_refund_gas: int  # per UTC day
    sweeper: bytes | None  # sends sweeps of deposits
    sweep_count: int  # number of unswept addresses that triggers a sweep, regardless of age
    sweep_after_s: int  # the age at which a deposit is swept
    sweep_gas_price_max: Decimal  # in gwei; 0: no limit
    sweep_now_at: datetime | None  # deposits that were final at this time are swept immediately
    transfer_fee_usd: Decimal  # usual network fee of a token transfer; 0: not shown to buyers
    updated_at: datetime

    @property
    def refunder(self) -> bytes | None:
        return self.refunders[-1] if self.refunders else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecord:
    """A token on a chain. `address` is None until it is configured."""

    chain: str
    symbol: str
    address: bytes | None
    decimals: int
    native: bool  # its address is 20 zero bytes
    approve_zero_first: bool
    minimum: Decimal  # in the smallest unit
    enabled: bool
    auto_refund_from: Decimal  # in tokens; smaller amounts are not refunded automatically
    sweep_value: Decimal = Decimal(0)  # in tokens; this unswept value triggers a sweep
    sweep_minimum: Decimal = Decimal(0)  # in tokens; smaller amounts at an address are not swept
    surplus_from: Decimal = Decimal(0)  # in tokens; a smaller surplus does not open a case


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedContract:
    """One of our gateway contracts. Retired contracts are still watched."""

    account_id: int
    merchant_id: int | None  # None means the platform
    chain: str
    address: bytes
    receiver: bytes
    deployed_block: int
    current: bool
    forwarder: bytes | None = None  # set only for deposit factories
    refund_account_id: int | None = None  # the contract that pays a factory's refunds


#: The factory for test addresses. Its address, forwarder and receiver do not exist on any chain.
TEST_FACTORY = DeployedContract(
    account_id=0,
    merchant_id=None,
    chain=TEST_CHAIN,
    address=b"\x7e\x57" + bytes(17) + b"\x0f",
    receiver=b"\x7e\x57" + bytes(17) + b"\x0e",
    deployed_block=0,
    current=True,
    forwarder=b"\x7e\x57" + bytes(17) + b"\x0d",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainCursor:
    """How far a chain has been read, and its newest known block."""

    chain: str
    block: int
    hash: bytes | None
    at: datetime | None
    head: int | None
    head_at: datetime | None
    window_at: datetime | None
    second_look_at: datetime
    second_look_block: int | None  # progress of an unfinished recheck
    halted: str | None
    polled_at: datetime | None
    watched: bool  # read recently and nearly up to its head, so payments are detected


_CHAIN_COLUMNS = """
    slug, name, network_id, finality, confirmations, instant_finality, grace_s, typical_s,
    block_time_ms, coin_symbol, coin_name, wallet_symbol, public_rpc_urls, explorer_urls,
    refunders, refund_approval_above, auto_refund_gas, sweeper, sweep_count, sweep_after_s,
    sweep_gas_price_max, sweep_now_at, transfer_fee_usd, updated_at
"""
_COIN_ADDRESS = "decode(repeat('00', 20), 'hex')"
_TOKEN_COLUMNS = f"""
    chain, symbol, address, decimals, address IS NOT DISTINCT FROM {_COIN_ADDRESS} AS native,
    approve_zero_first, minimum, enabled, auto_refund_from, sweep_value, sweep_minimum,
    surplus_from
"""
_CONTRACT_COLUMNS = """
    account_id, (SELECT merchant_id FROM provider_account a WHERE a.id = account_id) AS merchant_id,
    chain, address, receiver, deployed_block, current, forwarder, refund_account_id
"""
_CURSOR_COLUMNS = """
    chain, block, hash, at, head, head_at, window_at, second_look_at, second_look_block, halted,
    polled_at, halted IS NULL AND coalesce(watched_until > clock(), false) AS watched
"""


async def list_chains(database: Executor) -> list[ChainRecord]:
    """List all chains except the chain of test payments."""
    rows = await database.fetch(
        f"SELECT {_CHAIN_COLUMNS} FROM chain WHERE slug <> $1 ORDER BY slug LIMIT 100", TEST_CHAIN
    )
    return [ChainRecord(**row) for row in rows]


async def get_chain(database: Executor, slug: str) -> ChainRecord | None:
    row = await database.row(f"SELECT {_CHAIN_COLUMNS} FROM chain WHERE slug = $1", slug)
    return ChainRecord(**row) if row else None


async def lock_chain(tx: Tx, slug: str) -> ChainRecord | None:
    """Lock a chain before changing it or its tokens. Payments are not blocked."""
    row = await tx.row(
        f"SELECT {_CHAIN_COLUMNS} FROM chain WHERE slug = $1 FOR NO KEY UPDATE", slug
    )
    return ChainRecord(**row) if row else None


async def list_tokens(database: Executor, slug: str) -> list[TokenRecord]:
    """List a chain's tokens, including disabled tokens."""
    rows = await database.fetch(
        f"SELECT {_TOKEN_COLUMNS} FROM chain_token WHERE chain = $1 ORDER BY symbol LIMIT $2",
        slug,
        _TOKENS_MAX,
    )
    return [TokenRecord(**row) for row in rows]


async def list_contract_tokens(database: Executor, contract: DeployedContract) -> list[TokenRecord]:
    """List the chain's tokens that a contract can receive; coins at an address are not detected."""
    tokens = await list_tokens(database, contract.chain)
    return [token for token in tokens if contract.forwarder is None or not token.native]


async def get_session_token(database: Executor, session_id: UUID) -> TokenRecord | None:
    """Return a session's token as quoted, or None if the token had no address."""
    row = await database.row(
        f"""
        SELECT t.chain, t.symbol, s.token_address AS address,
            coalesce(s.token_decimals, t.decimals) AS decimals,
            s.token_address = {_COIN_ADDRESS} AS native,
            coalesce(s.token_zero_first, t.approve_zero_first) AS approve_zero_first,
            t.minimum, t.enabled, t.auto_refund_from
        FROM session s
        JOIN chain_token t ON t.chain = s.chain AND t.symbol = s.token
        WHERE s.id = $1 AND s.token_address IS NOT NULL
        """,
        session_id,
    )
    return TokenRecord(**row) if row else None


async def list_contracts(database: Executor, slug: str) -> list[DeployedContract]:
    """List our payment contracts on a chain, including retired contracts."""
    return await _list_deployed(database, slug, are_factories=False)


async def list_factories(database: Executor, slug: str) -> list[DeployedContract]:
    """List our deposit factories on a chain, including retired factories."""
    return await _list_deployed(database, slug, are_factories=True)


async def _list_deployed(
    database: Executor, slug: str, *, are_factories: bool
) -> list[DeployedContract]:
    rows = await database.fetch(
        f"""
        SELECT {_CONTRACT_COLUMNS}
        FROM chain_contract
        WHERE chain = $1 AND (forwarder IS NOT NULL) = $3
        ORDER BY account_id
        LIMIT $2
        """,
        slug,
        _CONTRACTS_MAX,
        are_factories,
    )
    return [DeployedContract(**row) for row in rows]


async def get_contract(database: Executor, account_id: int) -> DeployedContract | None:
    row = await database.row(
        f"SELECT {_CONTRACT_COLUMNS} FROM chain_contract WHERE account_id = $1", account_id
    )
    return DeployedContract(**row) if row else None


async def get_offered_contract(database: Executor, slug: str) -> DeployedContract | None:
    """Return the platform's newest current contract on a chain."""
    row = await database.row(
        """
        SELECT c.account_id, a.merchant_id, c.chain, c.address, c.receiver, c.deployed_block,
            c.current, c.forwarder, c.refund_account_id
        FROM chain_contract c
        JOIN provider_account a ON a.id = c.account_id
        WHERE c.chain = $1 AND c.current AND c.forwarder IS NULL AND a.merchant_id IS NULL
        ORDER BY c.account_id DESC
        LIMIT 1
        """,
        slug,
    )
    return DeployedContract(**row) if row else None


async def add_contract(tx: Tx, contract: DeployedContract) -> None:
    """Store a contract, and ensure that its chain is read from the deployment block."""
    await tx.fetch(
        """
        INSERT INTO chain_contract (account_id, chain, address, receiver, deployed_block, forwarder,
            refund_account_id)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        """,
        contract.account_id,
        contract.chain,
        contract.address,
        contract.receiver,
        contract.deployed_block,
        contract.forwarder,
        contract.refund_account_id,
    )
    if contract.forwarder is not None:
        return  # deposits are read starting at the chain's cursor
    await tx.fetch(
        """
        INSERT INTO chain_cursor (chain, block)
        VALUES ($1, greatest($2::bigint - 1, 0))
        ON CONFLICT (chain) DO NOTHING
        """,
        contract.chain,
        contract.deployed_block,
    )
    # A separate statement, so that it sees a cursor that was inserted concurrently.
    await tx.fetch(
        f"""
        UPDATE chain_cursor k
        SET block = greatest($2::bigint - 1, 0), hash = NULL, at = NULL, second_look_block = NULL,
            watched_until = {END_OF_WATCH}
        {CURRENT_TIME_SOURCE}
        WHERE k.chain = $1 AND k.block > greatest($2::bigint - 1, 0)
        """,
        contract.chain,
        contract.deployed_block,
    )


async def retire_contract(tx: Tx, account_id: int) -> DeployedContract | None:
    row = await tx.row(
        "UPDATE chain_contract SET current = false WHERE account_id = $1 RETURNING "
        + _CONTRACT_COLUMNS,
        account_id,
    )
    return DeployedContract(**row) if row else None


async def save_token(tx: Tx, token: TokenRecord) -> None:
    await tx.fetch(
        """
        UPDATE chain_token
        SET address = $3, decimals = $4, approve_zero_first = $5, minimum = $6, enabled = $7,
            auto_refund_from = $8, sweep_value = $9, sweep_minimum = $10, surplus_from = $11
        WHERE chain = $1 AND symbol = $2
        """,
        token.chain,
        token.symbol,
        token.address,
        token.decimals,
        token.approve_zero_first,
        token.minimum,
        token.enabled,
        token.auto_refund_from,
        token.sweep_value,
        token.sweep_minimum,
        token.surplus_from,
    )


async def save_chain(tx: Tx, chain: ChainRecord) -> None:
    await tx.fetch(
        """
        UPDATE chain
        SET finality = $2, confirmations = $3, instant_finality = $4, public_rpc_urls = $5,
            explorer_urls = $6, refunders = $7, refund_approval_above = $8, auto_refund_gas = $9,
            sweeper = $10, sweep_count = $11, sweep_after_s = $12, sweep_gas_price_max = $13,
            sweep_now_at = $14, transfer_fee_usd = $15, updated_at = clock()
        WHERE slug = $1
        """,
        chain.slug,
        chain.finality,
        chain.confirmations,
        chain.instant_finality,
        list(chain.public_rpc_urls),
        list(chain.explorer_urls),
        list(chain.refunders),
        chain.refund_approval_above,
        chain.auto_refund_gas,
        chain.sweeper,
        chain.sweep_count,
        chain.sweep_after_s,
        chain.sweep_gas_price_max,
        chain.sweep_now_at,
        chain.transfer_fee_usd,
    )


async def get_cursor(database: Executor, slug: str) -> ChainCursor | None:
    row = await database.row(f"SELECT {_CURSOR_COLUMNS} FROM chain_cursor WHERE chain = $1", slug)
    return ChainCursor(**row) if row else None


async def lock_cursor(tx: Tx, slug: str) -> ChainCursor | None:
    """Lock a chain cursor. It must be locked before the payments to which its logs belong."""
    row = await tx.row(
        f"SELECT {_CURSOR_COLUMNS} FROM chain_cursor WHERE chain = $1 FOR NO KEY UPDATE", slug
    )
    return ChainCursor(**row) if row else None


async def advance_cursor(tx: Tx, slug: str, block: int, block_hash: bytes, at: datetime) -> None:
    """Advance a cursor. The cursor must be locked."""
    await tx.fetch(
        "UPDATE chain_cursor SET block = $2, hash = $3, at = $4 WHERE chain = $1",
        slug,
        block,
        block_hash,
        at,
    )


async def set_head(
    database: Executor, slug: str, head: int, head_at: datetime, window_at: datetime | None
) -> None:
    """Record the newest block, and the time up to which two endpoints returned all logs."""
    await database.fetch(
        """
        UPDATE chain_cursor
        SET head = $2, head_at = greatest(head_at, $3),
            window_at = greatest(window_at, $4::timestamptz)
        WHERE chain = $1
        """,
        slug,
        head,
        head_at,
        window_at,
    )


async def set_recheck_progress(database: Executor, slug: str, block: int, *, ended: bool) -> None:
    """Record the progress or the end of a recheck of recent blocks."""
    await database.fetch(
        """
        UPDATE chain_cursor
        SET second_look_block = CASE WHEN $3 THEN NULL ELSE $2::bigint END,
            second_look_at = CASE WHEN $3 THEN t.now ELSE second_look_at END
        FROM (SELECT clock() AS now) t
        WHERE chain = $1
        """,
        slug,
        block,
        ended,
    )


async def halt(database: Executor, slug: str, why: str) -> None:
    """Stop reading a chain until an operator resumes it."""
    await database.fetch(
        f"""
        UPDATE chain_cursor k
        SET halted = coalesce(k.halted, $2), watched_until = {END_OF_WATCH} {CURRENT_TIME_SOURCE}
        WHERE k.chain = $1
        """,
        slug,
        why,
    )


async def resume(tx: Tx, slug: str, block: int | None) -> ChainCursor | None:
    """Resume a halted chain, and read all blocks after a given block again.

    A `block` after the last block read is ignored, because payments in the blocks in between would
    be missed. Deposits in the blocks to read must be found again to count towards a payment.
    """
    row = await tx.row(
        f"""
        WITH forgotten AS (
            DELETE FROM chain_receipt
            WHERE chain = $1 AND block > $2 AND disposition = 'deposit'
                AND deposit_capture_id IS NULL AND deposit_sweep_id IS NULL
        ), resumed AS (
            UPDATE chain_cursor k
            SET halted = NULL, block = least($2, block), hash = NULL, at = NULL,
                second_look_block = NULL, watched_until = {END_OF_WATCH},
                deposit_block = CASE WHEN deposit_block > $2 THEN $2 ELSE deposit_block END,
                sweep_block = CASE WHEN sweep_block > $2 THEN $2 ELSE sweep_block END,
                long_look_block = CASE WHEN long_look_block > $2 THEN $2 ELSE long_look_block END,
                deposit_at = NULL, look_until = NULL
            {CURRENT_TIME_SOURCE}
            WHERE k.chain = $1
            RETURNING k.*
        )
        SELECT {_CURSOR_COLUMNS} FROM resumed
        """,
        slug,
        block,
    )
    return ChainCursor(**row) if row else None
