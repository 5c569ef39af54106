-- Test payments to an address, on a chain that does not exist.
INSERT INTO provider (name, wire_name) VALUES ('test_onchain', 'onchain');
ALTER TABLE provider_account
    ADD CONSTRAINT provider_account_test_deposits
        CHECK (provider <> 'test_onchain' OR NOT livemode) NOT VALID;
ALTER TABLE payment_method
    ADD CONSTRAINT payment_method_test_chain
        CHECK (chain IS DISTINCT FROM 'test' OR NOT livemode) NOT VALID;
-- Nothing is deployed on the test chain, and nobody watches it.
ALTER TABLE chain_contract
    ADD CONSTRAINT chain_contract_test_chain CHECK (chain <> 'test') NOT VALID;
ALTER TABLE chain_cursor
    ADD CONSTRAINT chain_cursor_test_chain CHECK (chain <> 'test') NOT VALID;

-- A transfer to the address of a test session.
CREATE TABLE test_transfer (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id uuid NOT NULL CONSTRAINT test_transfer_session REFERENCES test_session (session_id),
    tx_hash bytea NOT NULL DEFAULT uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()),
    token text NOT NULL,
    amount bigint NOT NULL CONSTRAINT test_transfer_amount CHECK (amount > 0),
    in_time boolean NOT NULL,  -- made before the deadline, wherever the test clock is now
    captured boolean NOT NULL DEFAULT false,
    reports jsonb  -- what was reported to the service when this transfer arrived
);
CREATE INDEX test_transfer_by_session ON test_transfer (session_id, id);

INSERT INTO chain (slug, name, network_id, finality, confirmations, grace_s, typical_s,
    block_time_ms, coin_symbol, coin_name, wallet_symbol)
VALUES ('test', 'Test chain', 2147483647, 'finalized', NULL, 60, 1, 1000, 'TEST', 'Test coin',
    'TEST');
INSERT INTO chain_token (chain, symbol, address, decimals)
VALUES
    ('test', 'USDT', '\x7e57000000000000000000000000000000000001', 6),
    ('test', 'USDC', '\x7e57000000000000000000000000000000000002', 6);
