-- Payments to deposit addresses (provider `onchain`).
INSERT INTO provider (name, wire_name) VALUES ('onchain', 'onchain');

-- NULL: a payment contract. Otherwise the contract is a deposit factory, and this is the contract
-- that its proxies call.
ALTER TABLE chain_contract
    ADD COLUMN forwarder bytea,
    -- The payment contract that pays the refunds of a factory's deposits. It never changes, because
    -- a contract pays a refund once.
    ADD COLUMN refund_account_id bigint,
    ADD CONSTRAINT chain_contract_forwarder CHECK (octet_length(forwarder) = 20) NOT VALID,
    ADD CONSTRAINT chain_contract_factory
        CHECK ((forwarder IS NULL) = (refund_account_id IS NULL)) NOT VALID,
    ADD CONSTRAINT chain_contract_refund_account
        FOREIGN KEY (refund_account_id) REFERENCES chain_contract NOT VALID;

CREATE TABLE deposit_address (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id uuid NOT NULL CONSTRAINT deposit_address_session UNIQUE REFERENCES session,
    account_id bigint NOT NULL REFERENCES chain_contract,
    created_at timestamptz NOT NULL DEFAULT clock(),
    uuid bytea NOT NULL CONSTRAINT deposit_address_uuid CHECK (octet_length(uuid) = 16),
    address bytea NOT NULL CONSTRAINT deposit_address_address CHECK (octet_length(address) = 20),
    -- Transfers are looked for in the blocks after this one.
    from_block bigint NOT NULL CONSTRAINT deposit_address_from_block CHECK (from_block >= 0),
    covered boolean NOT NULL DEFAULT false,  -- every later range has been read with this address
    CONSTRAINT deposit_address_once UNIQUE (address, account_id)
);
CREATE INDEX deposit_address_created ON deposit_address (created_at);

-- Deposits are stored as final transfers. A capture includes one or more of them.
ALTER TABLE chain_receipt
    ADD COLUMN mined_at timestamptz,  -- of a deposit: the time of its block
    ADD COLUMN deposit_capture_id uuid,  -- of a deposit: the capture that includes it
    DROP CONSTRAINT chain_receipt_disposition,
    ADD CONSTRAINT chain_receipt_disposition CHECK (disposition IN (
        'credited', 'duplicate', 'underpaid', 'overpaid', 'wrong_token', 'wrong_receiver', 'late',
        'closed_session', 'unknown_uuid', 'deposit'
    )) NOT VALID,
    ADD CONSTRAINT chain_receipt_deposit CHECK (
        (disposition = 'deposit') = (mined_at IS NOT NULL)
        AND (deposit_capture_id IS NULL OR disposition = 'deposit')
    ) NOT VALID,
    ADD CONSTRAINT chain_receipt_deposit_capture
        FOREIGN KEY (deposit_capture_id) REFERENCES capture NOT VALID;

ALTER TABLE chain_sighting
    ADD COLUMN token bytea,  -- of a pending deposit
    ADD COLUMN amount numeric(78),  -- of a pending deposit, in the token's smallest unit
    ADD CONSTRAINT chain_sighting_deposit CHECK ((token IS NULL) = (amount IS NULL)) NOT VALID;

ALTER TABLE chain_cursor
    ADD COLUMN deposit_block bigint,  -- deposits are read up to and including this block
    ADD COLUMN deposit_at timestamptz,  -- of that block
    -- The progress of a second look at deposits, which is unfinished if `look_until` is set.
    ADD COLUMN look_first bigint,  -- its first block
    ADD COLUMN look_until bigint,  -- its last block
    ADD COLUMN look_id bigint,  -- the last address that it has read up to its last block
    ADD COLUMN look_block bigint,  -- the next addresses are read up to and including this block
    ADD COLUMN look_is_long boolean NOT NULL DEFAULT false,  -- includes addresses of 30 days
    ADD COLUMN looked_at timestamptz NOT NULL DEFAULT '-infinity',
    ADD COLUMN long_look_block bigint,  -- the last block of the last long look
    ADD COLUMN long_looked_at timestamptz NOT NULL DEFAULT '-infinity';

ALTER TABLE chain_token
    ADD COLUMN surplus_from numeric(38, 18) NOT NULL DEFAULT 0,  -- in tokens; less opens no case
    ADD CONSTRAINT chain_token_surplus_from CHECK (surplus_from >= 0) NOT VALID;

ALTER TABLE merchant
    ADD COLUMN deposit_tolerance numeric(4, 3) NOT NULL DEFAULT 0,  -- in percent of the amount
    ADD CONSTRAINT merchant_deposit_tolerance
        CHECK (deposit_tolerance BETWEEN 0 AND 1) NOT VALID;

ALTER TABLE money_case
    DROP CONSTRAINT money_case_kind,
    ADD CONSTRAINT money_case_kind CHECK (kind IN (
        'ORPHAN_CAPTURE', 'LATE_PAYMENT', 'DOUBLE_PAYMENT', 'AMOUNT_MISMATCH', 'TOKEN_MISMATCH',
        'SURPLUS', 'UNKNOWN_REFERENCE', 'REFUND_REVERSED', 'RECONCILIATION', 'UNDECIDED', 'DISPUTE',
        'OUTSIDE_REFUND', 'FRAUD_WARNING'
    )) NOT VALID;

-- A refund of a deposit waits for the buyer's address in the step `address`.
ALTER TABLE refund
    ADD COLUMN address_entries int NOT NULL DEFAULT 0,  -- how often the buyer has entered one
    DROP CONSTRAINT refund_step,
    ADD CONSTRAINT refund_step
        CHECK (step IN ('address', 'approval', 'queued', 'sent', 'ended')) NOT VALID,
    ADD CONSTRAINT refund_address_entries CHECK (address_entries BETWEEN 0 AND 2) NOT VALID;

-- A deposit may come from an exchange, where a refund to the sender would be lost. Therefore no
-- refund of a deposit is sent without an address, only the buyer can enter the sender's address,
-- and no policy can request a refund.
CREATE FUNCTION refund_of_deposit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT
        FROM capture c
        JOIN chain_contract k ON k.account_id = c.account_id
        WHERE c.id = NEW.capture_id AND k.forwarder IS NOT NULL
            AND (NEW.destination IS NULL AND NEW.step NOT IN ('address', 'ended')
                OR NEW.requested_by = 'policy:auto_refund'
                OR NEW.address_entries = 0 AND NEW.step <> 'ended' AND EXISTS (
                    SELECT
                    FROM chain_receipt r
                    WHERE r.session_id = c.session_id
                        AND '0x' || encode(r.payer, 'hex') = NEW.destination))
    ) THEN
        RAISE EXCEPTION 'a refund of a deposit needs an address that the buyer has entered'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'refund_of_deposit';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refund_of_deposit BEFORE INSERT OR UPDATE OF step ON refund
    FOR EACH ROW EXECUTE FUNCTION refund_of_deposit();

-- A buyer with an e-mail address gets the link to the page for the address.
ALTER TABLE mail
    ADD COLUMN refund_id uuid,
    DROP CONSTRAINT mail_kind,
    DROP CONSTRAINT mail_content,
    ADD CONSTRAINT mail_kind
        CHECK (kind IN ('invitation', 'receipt', 'refund_address')) NOT VALID,
    ADD CONSTRAINT mail_content CHECK (
        (kind = 'receipt') = (payment_id IS NOT NULL)
        AND (kind = 'refund_address') = (refund_id IS NOT NULL)
        AND (kind IN ('receipt', 'refund_address')) = (sealed IS NULL)
    ) NOT VALID,
    ADD CONSTRAINT mail_refund FOREIGN KEY (refund_id) REFERENCES refund NOT VALID;

-- The buyer may enter the address and change it once, until the refund is sent.
CREATE OR REPLACE FUNCTION refund_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.merchant_id, NEW.payment_id, NEW.capture_id, NEW.case_id, NEW.amount,
            NEW.amount_text, NEW.currency, NEW.amount_minor, NEW.requested_by, NEW.created_at)
        IS NOT DISTINCT FROM (OLD.merchant_id, OLD.payment_id, OLD.capture_id, OLD.case_id,
            OLD.amount, OLD.amount_text, OLD.currency, OLD.amount_minor, OLD.requested_by,
            OLD.created_at)
        AND (OLD.status <> 'PENDING' AND NEW.reason IS NULL AND NEW.destination IS NULL
            OR OLD.status = 'PENDING' AND OLD.sent_at IS NULL
                AND NEW.reason IS NOT DISTINCT FROM OLD.reason
                AND NEW.destination IS NOT NULL
                AND NEW.address_entries = OLD.address_entries + 1) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'refund % is what it was asked for', OLD.id
        USING ERRCODE = 'check_violation', CONSTRAINT = 'refund_frozen';
END $$;

-- A log of a final sweep. A sweep sends the whole balance of an address, so it takes all deposits
-- that are mined before it. Anyone can sweep.
CREATE TABLE deposit_sweep (
    id uuid PRIMARY KEY,
    chain text NOT NULL REFERENCES chain,
    account_id bigint NOT NULL REFERENCES chain_contract,  -- the factory
    uuid bytea NOT NULL CONSTRAINT deposit_sweep_uuid CHECK (octet_length(uuid) = 16),
    session_id uuid NOT NULL REFERENCES session,
    token bytea NOT NULL CONSTRAINT deposit_sweep_token CHECK (octet_length(token) = 20),
    currency text NOT NULL,
    succeeded boolean NOT NULL,
    amount numeric(78) NOT NULL,  -- that has left the address
    received numeric(78) NOT NULL,  -- by the receiver: less if the token takes a fee
    block bigint NOT NULL,
    block_hash bytea NOT NULL,
    tx_hash bytea NOT NULL,
    log_index int NOT NULL,
    final_at timestamptz NOT NULL DEFAULT clock(),
    CONSTRAINT deposit_sweep_log UNIQUE (chain, tx_hash, log_index),
    CONSTRAINT deposit_sweep_amount CHECK (
        succeeded = (amount > 0) AND received BETWEEN 0 AND amount
    )
);
CREATE INDEX deposit_sweep_session ON deposit_sweep (session_id, token, block);

ALTER TABLE chain_receipt
    ADD COLUMN deposit_sweep_id uuid,  -- of a deposit: the sweep that took it
    ADD CONSTRAINT chain_receipt_sweep
        CHECK (deposit_sweep_id IS NULL OR disposition = 'deposit') NOT VALID,
    ADD CONSTRAINT chain_receipt_deposit_sweep
        FOREIGN KEY (deposit_sweep_id) REFERENCES deposit_sweep NOT VALID;

ALTER TABLE chain_cursor
    ADD COLUMN sweep_block bigint;  -- sweeps are read up to and including this block

-- A sweep transaction of the sweeper, stored before the signer is called.
CREATE TABLE sweep_batch (
    id uuid PRIMARY KEY,
    chain text NOT NULL REFERENCES chain,
    account_id bigint NOT NULL REFERENCES chain_contract,  -- the factory
    token bytea NOT NULL CONSTRAINT sweep_batch_token CHECK (octet_length(token) = 20),
    sender bytea NOT NULL CONSTRAINT sweep_batch_sender CHECK (octet_length(sender) = 20),
    created_at timestamptz NOT NULL DEFAULT clock(),
    tx_hash bytea CONSTRAINT sweep_batch_tx_hash CHECK (octet_length(tx_hash) = 32),
    ended_at timestamptz,
    result text CONSTRAINT sweep_batch_result CHECK (result IN ('mined', 'reverted', 'lost')),
    gas_cost numeric(78)  -- in the smallest unit of the chain's coin
        CONSTRAINT sweep_batch_gas_cost CHECK (gas_cost > 0),
    CONSTRAINT sweep_batch_end CHECK ((ended_at IS NULL) = (result IS NULL))
);
CREATE INDEX sweep_batch_open ON sweep_batch (chain, created_at) WHERE ended_at IS NULL;
CREATE INDEX sweep_batch_transaction ON sweep_batch (tx_hash) WHERE tx_hash IS NOT NULL;

CREATE TABLE sweep_item (
    batch_id uuid NOT NULL REFERENCES sweep_batch,
    session_id uuid NOT NULL REFERENCES session,
    token bytea NOT NULL,
    ended boolean NOT NULL DEFAULT false,
    PRIMARY KEY (batch_id, session_id)
);
-- Two sweepers cannot claim the same address at the same time.
CREATE UNIQUE INDEX sweep_item_claim ON sweep_item (session_id, token) WHERE NOT ended;

-- Deposits are swept when enough of them are final, or the oldest is old, or they are worth enough.
ALTER TABLE chain
    ADD COLUMN sweeper bytea,
    ADD COLUMN sweep_count int NOT NULL DEFAULT 50,
    ADD COLUMN sweep_after_s int NOT NULL DEFAULT 86400,
    ADD COLUMN sweep_gas_price_max numeric(38, 9) NOT NULL DEFAULT 0,  -- in gwei; 0: no limit
    ADD COLUMN sweep_now_at timestamptz,  -- deposits that were final then are swept at once
    -- The usual network fee of a token transfer, in US dollars; 0: buyers are not told.
    ADD COLUMN transfer_fee_usd numeric(12, 6) NOT NULL DEFAULT 0,
    ADD CONSTRAINT chain_transfer_fee CHECK (transfer_fee_usd >= 0) NOT VALID,
    ADD CONSTRAINT chain_sweeper CHECK (octet_length(sweeper) = 20) NOT VALID,
    ADD CONSTRAINT chain_sweep_policy CHECK (
        sweep_count > 0 AND sweep_after_s >= 0 AND sweep_gas_price_max >= 0
    ) NOT VALID;

ALTER TABLE chain_token
    ADD COLUMN sweep_value numeric(38, 18) NOT NULL DEFAULT 0,  -- in tokens; 0: not considered
    ADD COLUMN sweep_minimum numeric(38, 18) NOT NULL DEFAULT 0,  -- less is dust, in tokens
    ADD CONSTRAINT chain_token_sweep CHECK (sweep_value >= 0 AND sweep_minimum >= 0) NOT VALID;

-- A comparison run of a deposit factory compares addresses.
ALTER TABLE reconciliation_blocks ADD COLUMN address_id bigint NOT NULL DEFAULT 0;
ALTER TABLE reconciliation_sum
    DROP CONSTRAINT reconciliation_sum_type,
    ADD CONSTRAINT reconciliation_sum_type CHECK (type IN (
        'payment', 'refund', 'dispute', 'dispute_reversal', 'payout', 'deposit'
    )) NOT VALID;

-- `chain_deposits` has the money at deposit addresses, until it is swept.
ALTER TABLE ledger_entry
    DROP CONSTRAINT ledger_entry_fact,
    DROP CONSTRAINT ledger_entry_debit,
    DROP CONSTRAINT ledger_entry_credit,
    ADD CONSTRAINT ledger_entry_fact CHECK (fact IN (
        'capture', 'capture_adopted', 'refund_reserved', 'refund_done', 'refund_reversed',
        'dispute_opened', 'dispute_moved', 'dispute_won', 'dispute_lost', 'case_accepted',
        'case_dismissed', 'gateway_payout', 'payout', 'adjustment', 'sweep', 'sweep_gas'
    )) NOT VALID,
    ADD CONSTRAINT ledger_entry_debit CHECK (split_part(debit, ':', 1) IN (
        'gateway_clearing', 'chain_receiver', 'chain_deposits', 'chain_gas', 'merchant_payable',
        'fee_income', 'tax_payable', 'suspense', 'refund_reserve', 'dispute_reserve', 'bank'
    )) NOT VALID,
    ADD CONSTRAINT ledger_entry_credit CHECK (split_part(credit, ':', 1) IN (
        'gateway_clearing', 'chain_receiver', 'chain_deposits', 'chain_gas', 'merchant_payable',
        'fee_income', 'tax_payable', 'suspense', 'refund_reserve', 'dispute_reserve', 'bank'
    )) NOT VALID;
