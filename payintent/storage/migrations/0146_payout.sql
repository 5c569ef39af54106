-- What the operator paid to its merchants, entered in the ledger (decision 79). An entry has a
-- number from now on, in the order of insertion; entries of before have 0.
ALTER TABLE ledger_entry ADD COLUMN entry_number bigint NOT NULL DEFAULT 0;
ALTER TABLE ledger_entry ALTER COLUMN entry_number DROP DEFAULT;
ALTER TABLE ledger_entry ALTER COLUMN entry_number ADD GENERATED ALWAYS AS IDENTITY;
CREATE TABLE payout (
    id uuid PRIMARY KEY,
    merchant_id bigint NOT NULL REFERENCES merchant (id),
    currency text NOT NULL,
    chain text,
    amount_minor numeric(78) NOT NULL CONSTRAINT payout_amount CHECK (amount_minor > 0),
    reference text NOT NULL
        CONSTRAINT payout_reference CHECK (length(reference) BETWEEN 1 AND 200),
    paid_on date NOT NULL,
    recorded_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock(),
    reversed_at timestamptz,
    reversed_by text,
    reversal_note text,
    CONSTRAINT payout_reversal CHECK (
        num_nonnulls(reversed_at, reversed_by, reversal_note) IN (0, 3))
);
-- The bank's reference is recorded once; one that was reversed may be recorded again.
CREATE UNIQUE INDEX payout_once ON payout (merchant_id, reference) WHERE reversed_at IS NULL;
CREATE INDEX payout_of_merchant ON payout (merchant_id, id);

-- What a merchant is owed, in smallest units; less than 0: it owes.
CREATE FUNCTION merchant_payable(of_merchant bigint, of_currency text, of_chain text)
RETURNS numeric LANGUAGE sql STABLE AS $$
    SELECT coalesce(sum(CASE e.credit WHEN 'merchant_payable:' || of_merchant THEN e.amount
        ELSE -e.amount END), 0)
    FROM ledger_entry e
    WHERE e.merchant_id = of_merchant AND e.currency = of_currency
        AND e.chain IS NOT DISTINCT FROM of_chain
        AND 'merchant_payable:' || of_merchant IN (e.debit, e.credit)
$$;
CREATE FUNCTION payout_within_payable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Payouts of a merchant come one after the other: each sees the entries of those before.
    PERFORM pg_advisory_xact_lock(7002, hashint8(NEW.merchant_id));
    IF NEW.amount_minor > merchant_payable(NEW.merchant_id, NEW.currency, NEW.chain) THEN
        RAISE EXCEPTION 'a payout is above what its merchant is owed'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'payout_within_payable';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER payout_within_payable BEFORE INSERT ON payout
    FOR EACH ROW EXECUTE FUNCTION payout_within_payable();
CREATE FUNCTION payout_stands() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' OR OLD.reversed_at IS NOT NULL OR NEW.reversed_at IS NULL
        OR (NEW.id, NEW.merchant_id, NEW.currency, NEW.chain, NEW.amount_minor, NEW.reference,
            NEW.paid_on, NEW.recorded_by, NEW.created_at)
        IS DISTINCT FROM (OLD.id, OLD.merchant_id, OLD.currency, OLD.chain, OLD.amount_minor,
            OLD.reference, OLD.paid_on, OLD.recorded_by, OLD.created_at) THEN
        RAISE EXCEPTION 'a payout is only ever reversed'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'payout_stands';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER payout_stands BEFORE UPDATE OR DELETE ON payout
    FOR EACH ROW EXECUTE FUNCTION payout_stands();
