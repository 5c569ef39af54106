-- Contracts' logs are compared with captures, ledger and the receiver's balance (decision 115).
ALTER TABLE reconciliation_run DROP CONSTRAINT reconciliation_run_source;
ALTER TABLE reconciliation_run ADD CONSTRAINT reconciliation_run_source
    CHECK (source IN ('folder', 's3', 'chain', 'api')) NOT VALID;
ALTER TABLE reconciliation_run VALIDATE CONSTRAINT reconciliation_run_source;

-- Which blocks a run is about, and how far it has come: one that was left goes on there.
CREATE TABLE reconciliation_blocks (
    run_id uuid PRIMARY KEY REFERENCES reconciliation_run (id),
    account_id bigint NOT NULL REFERENCES chain_contract (account_id),
    first_block bigint NOT NULL,
    last_block bigint NOT NULL,
    next_block bigint NOT NULL,
    differences int NOT NULL DEFAULT 0,
    opened int NOT NULL DEFAULT 0,
    CONSTRAINT reconciliation_blocks_order
        CHECK (first_block <= next_block AND next_block <= last_block + 1)
);
CREATE INDEX reconciliation_blocks_newest ON reconciliation_blocks (account_id, last_block);

-- What was at a receiver at the last block, beside what the ledger has of it, in units of the token.
CREATE TABLE reconciliation_balance (
    run_id uuid NOT NULL REFERENCES reconciliation_run (id),
    currency text NOT NULL,
    block bigint NOT NULL,
    receiver numeric,  -- NULL: no endpoint told it
    refunders numeric,
    ledger numeric NOT NULL,
    expected numeric,  -- NULL: what is taken out of it by hand is not entered
    PRIMARY KEY (run_id, currency)
);
