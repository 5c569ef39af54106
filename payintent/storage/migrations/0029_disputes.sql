-- Disputes: what the buyer's bank asks back. They count against what can be refunded.
ALTER TABLE money_case
    DROP CONSTRAINT money_case_kind,
    ADD CONSTRAINT money_case_kind CHECK (kind IN (
        'ORPHAN_CAPTURE', 'LATE_PAYMENT', 'DOUBLE_PAYMENT', 'AMOUNT_MISMATCH', 'TOKEN_MISMATCH',
        'UNKNOWN_REFERENCE', 'REFUND_REVERSED', 'RECONCILIATION', 'UNDECIDED', 'DISPUTE'
    )) NOT VALID;

CREATE TABLE dispute (
    id uuid PRIMARY KEY,
    account_id bigint NOT NULL REFERENCES provider_account,
    reference text NOT NULL CONSTRAINT dispute_reference CHECK (length(reference) BETWEEN 1 AND 300),
    capture_id uuid NOT NULL REFERENCES capture,
    case_id uuid NOT NULL UNIQUE REFERENCES money_case,
    state text NOT NULL CONSTRAINT dispute_state
        CHECK (state IN ('inquiry', 'open', 'under_review', 'won', 'lost', 'closed')),
    funds text NOT NULL CONSTRAINT dispute_funds
        CHECK (funds IN ('untouched', 'withdrawn', 'reinstated')),
    amount_minor numeric(78, 0) NOT NULL CONSTRAINT dispute_amount CHECK (amount_minor >= 0),
    currency text NOT NULL,
    reason text NOT NULL DEFAULT '' CONSTRAINT dispute_reason CHECK (length(reason) <= 300),
    respond_by timestamptz,
    held_minor numeric(78, 0) NOT NULL CONSTRAINT dispute_held CHECK (held_minor >= 0),
    created_at timestamptz NOT NULL DEFAULT clock(),
    updated_at timestamptz NOT NULL DEFAULT clock(),
    CONSTRAINT dispute_once UNIQUE (account_id, reference)
);
CREATE INDEX dispute_capture ON dispute (capture_id);

-- What open and lost disputes hold of a capture. It may be more than is left, for money that has
-- gone back can be disputed as well; but nothing is promised back beyond it.
ALTER TABLE capture ADD COLUMN disputed_minor numeric(78, 0) NOT NULL DEFAULT 0
    CONSTRAINT capture_disputed_minor CHECK (disputed_minor >= 0);
CREATE FUNCTION capture_disputed() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'capture % is disputed: that much cannot be given back', OLD.id
        USING ERRCODE = 'check_violation', CONSTRAINT = 'capture_disputed';
END $$;
CREATE TRIGGER capture_disputed
    BEFORE UPDATE OF reserved_minor ON capture
    FOR EACH ROW
    WHEN (NEW.reserved_minor > OLD.reserved_minor AND NEW.disputed_minor > 0
        AND NEW.refunded_minor + NEW.reserved_minor + NEW.disputed_minor > NEW.amount_minor)
    EXECUTE FUNCTION capture_disputed();
