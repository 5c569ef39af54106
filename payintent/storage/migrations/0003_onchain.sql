-- Chains, our contracts on them, what their finalized blocks say, and how far we have read.

CREATE TABLE chain (
    slug text PRIMARY KEY,
    name text NOT NULL,
    network_id bigint NOT NULL UNIQUE,
    finality text NOT NULL CONSTRAINT chain_finality CHECK (finality IN ('finalized', 'confirmations')),
    confirmations int CONSTRAINT chain_confirmations CHECK (confirmations BETWEEN 1 AND 10000),
    instant_finality boolean NOT NULL DEFAULT false,  -- a node may answer latest for `finalized`
    grace_s int NOT NULL,  -- after this past its deadline a sighted payment alarms
    typical_s int NOT NULL,  -- how long finality takes, for whoever waits
    block_time_ms int NOT NULL,
    coin_symbol text NOT NULL,
    coin_name text NOT NULL,
    wallet_symbol text NOT NULL  -- of the coin in wallets, which refuse longer ones
        CONSTRAINT chain_wallet_symbol CHECK (length(wallet_symbol) BETWEEN 1 AND 6),
    public_rpc_urls text[] NOT NULL DEFAULT '{}',  -- for wallets; never the watcher's
    explorer_urls text[] NOT NULL DEFAULT '{}',
    updated_at timestamptz NOT NULL DEFAULT clock()
);
INSERT INTO chain (slug, name, network_id, finality, confirmations, grace_s, typical_s,
    block_time_ms, coin_symbol, coin_name, wallet_symbol)
VALUES
    ('ethereum', 'Ethereum', 1, 'finalized', NULL, 2400, 960, 12000, 'ETH', 'Ether', 'ETH'),
    ('bsc', 'BNB Smart Chain', 56, 'finalized', NULL, 600, 4, 750, 'BNB', 'BNB', 'BNB'),
    ('native', 'Native', 612055, 'confirmations', NULL, 600, 30, 2000, 'NATIVED', 'Native dollar',
        'NATVD');

CREATE TABLE chain_token (
    chain text NOT NULL REFERENCES chain,
    symbol text NOT NULL,
    address bytea  -- NULL: not deployed there yet; 20 zeros: the chain's own coin
        CONSTRAINT chain_token_address CHECK (octet_length(address) = 20),
    decimals int NOT NULL CONSTRAINT chain_token_decimals CHECK (decimals BETWEEN 0 AND 18),
    approve_zero_first boolean NOT NULL DEFAULT false,
    minimum numeric(78, 0) NOT NULL DEFAULT 1 CONSTRAINT chain_token_minimum CHECK (minimum > 0),
    enabled boolean NOT NULL DEFAULT true,
    PRIMARY KEY (chain, symbol)
);
INSERT INTO chain_token (chain, symbol, address, decimals, approve_zero_first, enabled)
VALUES
    ('ethereum', 'USDT', '\xdac17f958d2ee523a2206206994597c13d831ec7', 6, true, true),
    ('ethereum', 'USDC', '\xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48', 6, false, false),
    ('bsc', 'USDT', '\x55d398326f99059ff775485246999027b3197955', 18, false, true),
    ('bsc', 'USDC', '\x8ac76a51cc950d9822d68b83fe1ad97b32cd580d', 18, false, false),
    ('native', 'USDT', NULL, 18, false, true),
    ('native', 'NATIVED', '\x0000000000000000000000000000000000000000', 18, false, true);

-- A contract is an account at the provider `gateway_contract`: a session of another is nobody's.
CREATE TABLE chain_contract (
    account_id bigint PRIMARY KEY REFERENCES provider_account,
    chain text NOT NULL REFERENCES chain,
    address bytea NOT NULL CONSTRAINT chain_contract_address CHECK (octet_length(address) = 20),
    receiver bytea NOT NULL CONSTRAINT chain_contract_receiver CHECK (octet_length(receiver) = 20),
    deployed_block bigint NOT NULL CONSTRAINT chain_contract_block CHECK (deployed_block >= 0),
    current boolean NOT NULL DEFAULT true,  -- offered; the others stay watched
    added_at timestamptz NOT NULL DEFAULT clock(),
    CONSTRAINT chain_contract_once UNIQUE (chain, address)
);

CREATE TABLE chain_cursor (
    chain text PRIMARY KEY REFERENCES chain,
    block bigint NOT NULL,  -- everything up to here is read
    hash bytea,  -- NULL: from a block that nobody has looked at
    at timestamptz,  -- of that block
    head bigint,
    head_at timestamptz,
    window_at timestamptz,  -- up to here two endpoints have shown what is not final yet
    second_look_at timestamptz NOT NULL DEFAULT clock(),
    second_look_block bigint,  -- how far one has come that is not through yet
    halted text,  -- why nobody reads any further
    polled_at timestamptz
);

CREATE TABLE chain_receipt (
    id uuid PRIMARY KEY,
    chain text NOT NULL REFERENCES chain,
    account_id bigint NOT NULL REFERENCES chain_contract,
    block bigint NOT NULL,
    block_hash bytea NOT NULL,
    tx_hash bytea NOT NULL,
    log_index int NOT NULL,
    uuid bytea NOT NULL,
    payer bytea NOT NULL,
    token bytea NOT NULL,
    receiver bytea NOT NULL,
    amount numeric(78, 0) NOT NULL,
    session_id uuid REFERENCES session,
    disposition text NOT NULL CONSTRAINT chain_receipt_disposition CHECK (disposition IN (
        'credited', 'duplicate', 'underpaid', 'overpaid', 'wrong_token', 'wrong_receiver', 'late',
        'closed_session', 'unknown_uuid'
    )),
    final_at timestamptz NOT NULL,
    CONSTRAINT chain_receipt_once UNIQUE (chain, tx_hash, log_index),
    CONSTRAINT chain_receipt_known CHECK (
        session_id IS NOT NULL OR disposition IN ('unknown_uuid', 'wrong_receiver')
    )
);
CREATE UNIQUE INDEX chain_receipt_one_credit ON chain_receipt (session_id)
    WHERE disposition = 'credited';
CREATE INDEX chain_receipt_session ON chain_receipt (session_id);

-- What was seen in blocks that are not final: for the page, for patience, never for money.
CREATE TABLE chain_sighting (
    chain text NOT NULL REFERENCES chain,
    tx_hash bytea NOT NULL,
    log_index int NOT NULL,
    session_id uuid NOT NULL REFERENCES session,
    exact boolean NOT NULL,
    block bigint NOT NULL,
    seen_at timestamptz NOT NULL,
    gone_at timestamptz,  -- proven to be no more
    PRIMARY KEY (chain, tx_hash, log_index)
);
CREATE INDEX chain_sighting_session ON chain_sighting (session_id);
CREATE INDEX chain_sighting_there ON chain_sighting (chain, block) WHERE gone_at IS NULL;

CREATE TABLE chain_hint (
    session_id uuid NOT NULL REFERENCES session,
    tx_hash bytea NOT NULL CONSTRAINT chain_hint_tx_hash CHECK (octet_length(tx_hash) = 32),
    step text NOT NULL CONSTRAINT chain_hint_step CHECK (step IN ('approve', 'pay')),
    state text NOT NULL DEFAULT 'unknown' CONSTRAINT chain_hint_state CHECK (
        state IN ('unknown', 'pending', 'mined', 'reverted', 'foreign', 'duplicate')
    ),
    reason text NOT NULL DEFAULT '',
    final boolean NOT NULL DEFAULT false,
    posted_at timestamptz NOT NULL DEFAULT clock(),
    looked_at timestamptz,  -- whoever was looked up longest ago is next
    settled_at timestamptz,
    PRIMARY KEY (session_id, tx_hash)
);

CREATE UNIQUE INDEX session_pay_uuid ON session (reference) WHERE provider = 'gateway_contract';
CREATE INDEX session_chain ON session (chain) WHERE chain IS NOT NULL AND life <> 'ended';

-- A provider that was asked and has been silent since; one that says it is still deciding is not.
ALTER TABLE session ADD COLUMN silent_since timestamptz;

-- Money may arrive that names no session of ours.
ALTER TABLE money_case
    ALTER COLUMN merchant_id DROP NOT NULL,
    ALTER COLUMN payment_id DROP NOT NULL,
    ALTER COLUMN session_id DROP NOT NULL,
    ADD COLUMN receipt_id uuid REFERENCES chain_receipt,
    ADD COLUMN closed_at timestamptz,
    ADD COLUMN closed_by text,
    ADD COLUMN note text NOT NULL DEFAULT '',
    DROP CONSTRAINT money_case_once,
    ADD CONSTRAINT money_case_once
        UNIQUE NULLS NOT DISTINCT (session_id, capture_id, receipt_id, kind),
    ADD CONSTRAINT money_case_about CHECK (session_id IS NOT NULL OR receipt_id IS NOT NULL),
    ADD CONSTRAINT money_case_closed CHECK (
        (status = 'OPEN') = (closed_at IS NULL) AND (status = 'OPEN') = (closed_by IS NULL)
    );
CREATE INDEX money_case_open ON money_case (id) WHERE status = 'OPEN';
