-- What gateways paid out of their accounts, and kept as their fee, entered in the ledger (decision
-- 89). An amount below 0: the gateway took it from the bank of the account's owner.
CREATE TABLE gateway_payout (
    id uuid PRIMARY KEY,
    account_id bigint NOT NULL REFERENCES provider_account (id),
    currency text NOT NULL,
    chain text,
    amount_minor numeric(78) NOT NULL CONSTRAINT gateway_payout_amount CHECK (amount_minor <> 0),
    fee_minor numeric(78) NOT NULL,
    reference text NOT NULL
        CONSTRAINT gateway_payout_reference CHECK (length(reference) BETWEEN 1 AND 200),
    paid_on date NOT NULL,
    recorded_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock(),
    reversed_at timestamptz,
    reversed_by text,
    reversal_note text,
    CONSTRAINT gateway_payout_reversal CHECK (
        num_nonnulls(reversed_at, reversed_by, reversal_note) IN (0, 3))
);
-- The gateway's reference is recorded once; one that was reversed may be recorded again.
CREATE UNIQUE INDEX gateway_payout_once ON gateway_payout (account_id, reference)
WHERE reversed_at IS NULL;
CREATE FUNCTION gateway_payout_stands() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' OR OLD.reversed_at IS NOT NULL OR NEW.reversed_at IS NULL
        OR (NEW.id, NEW.account_id, NEW.currency, NEW.chain, NEW.amount_minor, NEW.fee_minor,
            NEW.reference, NEW.paid_on, NEW.recorded_by, NEW.created_at)
        IS DISTINCT FROM (OLD.id, OLD.account_id, OLD.currency, OLD.chain, OLD.amount_minor,
            OLD.fee_minor, OLD.reference, OLD.paid_on, OLD.recorded_by, OLD.created_at) THEN
        RAISE EXCEPTION 'a payout of a gateway is only ever reversed'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'gateway_payout_stands';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER gateway_payout_stands BEFORE UPDATE OR DELETE ON gateway_payout
    FOR EACH ROW EXECUTE FUNCTION gateway_payout_stands();
