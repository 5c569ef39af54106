-- What a merchant's former cell owes it is carried to the cell that it is in now (decision 124): the
-- same row in both cells, each with an entry in its ledger. The former cell's is written first.
CREATE TABLE cell_transfer (
    id uuid PRIMARY KEY,
    merchant_id bigint NOT NULL REFERENCES merchant (id),
    currency text NOT NULL,
    chain text,
    -- What the former cell owed; less than 0: the merchant owed it.
    amount_minor numeric(78) NOT NULL CONSTRAINT cell_transfer_amount CHECK (amount_minor <> 0),
    from_cell smallint NOT NULL,
    to_cell smallint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock(),
    arrived_at timestamptz,  -- the other cell has it
    CONSTRAINT cell_transfer_cells CHECK (from_cell <> to_cell)
);
CREATE INDEX cell_transfer_waiting ON cell_transfer (id) WHERE arrived_at IS NULL;
CREATE INDEX cell_transfer_of_merchant ON cell_transfer (merchant_id, created_at);

-- The former cell gives all that it owes at that moment, and the database says how much that is: so
-- whoever comes second finds nothing that was carried already. A half that the other cell has, or
-- had before this one lost it, is written as it stands there.
CREATE FUNCTION cell_transfer_whole() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    this_cell smallint := (SELECT cell FROM installation);
    present_cell smallint := coalesce((SELECT cell FROM merchant_cell
        WHERE merchant_id = NEW.merchant_id AND until IS NULL), 0);
BEGIN
    -- Payouts and transfers of a merchant come one after the other.
    PERFORM pg_advisory_xact_lock(7002, hashint8(NEW.merchant_id));
    IF this_cell IS NULL OR this_cell NOT IN (NEW.from_cell, NEW.to_cell) THEN
        RAISE EXCEPTION 'a transfer is between other cells'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'cell_transfer_side';
    END IF;
    IF NEW.arrived_at IS NOT NULL THEN
        RETURN NEW;
    END IF;
    IF this_cell <> NEW.from_cell OR NEW.amount_minor IS NOT NULL OR present_cell = this_cell THEN
        RAISE EXCEPTION 'a cell carries all that it owes a merchant of another cell, and no more'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'cell_transfer_whole';
    END IF;
    NEW.amount_minor := merchant_payable(NEW.merchant_id, NEW.currency, NEW.chain);
    IF NEW.amount_minor = 0 THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER cell_transfer_whole BEFORE INSERT ON cell_transfer
    FOR EACH ROW EXECUTE FUNCTION cell_transfer_whole();
CREATE FUNCTION cell_transfer_stands() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' OR NEW.arrived_at IS NULL
        OR (NEW.id, NEW.merchant_id, NEW.currency, NEW.chain, NEW.amount_minor, NEW.from_cell,
            NEW.to_cell, NEW.created_at)
        IS DISTINCT FROM (OLD.id, OLD.merchant_id, OLD.currency, OLD.chain, OLD.amount_minor,
            OLD.from_cell, OLD.to_cell, OLD.created_at) THEN
        RAISE EXCEPTION 'a transfer between cells stands'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'cell_transfer_stands';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER cell_transfer_stands BEFORE UPDATE OR DELETE ON cell_transfer
    FOR EACH ROW EXECUTE FUNCTION cell_transfer_stands();

-- A payout is made in the merchant's present cell alone, so that all of them see each other.
CREATE OR REPLACE FUNCTION payout_within_payable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Payouts of a merchant come one after the other: each sees the entries of those before.
    PERFORM pg_advisory_xact_lock(7002, hashint8(NEW.merchant_id));
    IF coalesce((SELECT cell FROM merchant_cell WHERE merchant_id = NEW.merchant_id
            AND until IS NULL), 0) <> (SELECT cell FROM installation) THEN
        RAISE EXCEPTION 'a payout is made in the cell that its merchant is in'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'payout_in_present_cell';
    END IF;
    IF NEW.amount_minor > merchant_payable(NEW.merchant_id, NEW.currency, NEW.chain) THEN
        RAISE EXCEPTION 'a payout is above what its merchant is owed'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'payout_within_payable';
    END IF;
    RETURN NEW;
END $$;

ALTER TABLE ledger_entry DROP CONSTRAINT ledger_entry_fact;
ALTER TABLE ledger_entry ADD CONSTRAINT ledger_entry_fact CHECK (fact IN (
    'capture', 'capture_adopted', 'refund_reserved', 'refund_done', 'refund_reversed',
    'dispute_opened', 'dispute_moved', 'dispute_won', 'dispute_lost',
    'case_accepted', 'case_dismissed', 'gateway_payout', 'payout', 'adjustment',
    'cell_transfer')) NOT VALID;
ALTER TABLE ledger_entry DROP CONSTRAINT ledger_entry_debit;
ALTER TABLE ledger_entry ADD CONSTRAINT ledger_entry_debit CHECK (split_part(debit, ':', 1) IN (
    'gateway_clearing', 'chain_receiver', 'chain_gas', 'merchant_payable', 'fee_income',
    'tax_payable', 'suspense', 'refund_reserve', 'dispute_reserve', 'bank',
    'cell_clearing')) NOT VALID;
ALTER TABLE ledger_entry DROP CONSTRAINT ledger_entry_credit;
ALTER TABLE ledger_entry ADD CONSTRAINT ledger_entry_credit CHECK (split_part(credit, ':', 1) IN (
    'gateway_clearing', 'chain_receiver', 'chain_gas', 'merchant_payable', 'fee_income',
    'tax_payable', 'suspense', 'refund_reserve', 'dispute_reserve', 'bank',
    'cell_clearing')) NOT VALID;
