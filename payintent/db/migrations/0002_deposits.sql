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
    ADD COLUMN look_id bigint,  -- the last address that it has read
    ADD COLUMN look_is_long boolean NOT NULL DEFAULT false,  -- includes addresses of 30 days
    ADD COLUMN looked_at timestamptz NOT NULL DEFAULT '-infinity',
    ADD COLUMN long_look_block bigint,  -- the last block of the last long look
    ADD COLUMN long_looked_at timestamptz NOT NULL DEFAULT '-infinity';

ALTER TABLE chain_token
    ADD COLUMN surplus_from numeric(78) NOT NULL DEFAULT 1,  -- in the smallest unit
    ADD CONSTRAINT chain_token_surplus_from CHECK (surplus_from > 0) NOT VALID;

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
-- refund of a deposit is sent without an address, and no policy can request one.
CREATE FUNCTION refund_of_deposit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.destination IS NULL AND NEW.step NOT IN ('address', 'ended')
            OR NEW.requested_by = 'policy:auto_refund') AND EXISTS (
        SELECT
        FROM capture c
        JOIN chain_contract k ON k.account_id = c.account_id
        WHERE c.id = NEW.capture_id AND k.forwarder IS NOT NULL
    ) THEN
        RAISE EXCEPTION 'a refund of a deposit needs an address that the buyer has entered'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'refund_of_deposit';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refund_of_deposit BEFORE INSERT OR UPDATE OF step ON refund
    FOR EACH ROW EXECUTE FUNCTION refund_of_deposit();

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
