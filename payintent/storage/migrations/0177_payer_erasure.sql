-- What is of a payer can be taken out of what stays for the books (decision 96).
ALTER TABLE chain_refund ALTER COLUMN destination DROP NOT NULL;

-- Of a refund that has ended, reason and destination may go, both and nothing else.
CREATE OR REPLACE FUNCTION refund_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.status <> 'PENDING' AND NEW.reason IS NULL AND NEW.destination IS NULL
        AND (NEW.merchant_id, NEW.payment_id, NEW.capture_id, NEW.case_id, NEW.amount,
            NEW.amount_text, NEW.currency, NEW.amount_minor, NEW.requested_by, NEW.created_at)
        IS NOT DISTINCT FROM (OLD.merchant_id, OLD.payment_id, OLD.capture_id, OLD.case_id,
            OLD.amount, OLD.amount_text, OLD.currency, OLD.amount_minor, OLD.requested_by,
            OLD.created_at) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'refund % is what it was asked for', OLD.id
        USING ERRCODE = 'check_violation', CONSTRAINT = 'refund_frozen';
END $$;
