-- A merchant's statement of a day and a currency, frozen when the day is closed (decision 80).
ALTER TABLE merchant ADD COLUMN time_zone text NOT NULL DEFAULT 'UTC'
    CONSTRAINT merchant_time_zone CHECK (time_zone ~ '^[A-Za-z0-9_+/-]{1,64}$');
CREATE TABLE statement (
    id uuid PRIMARY KEY,
    merchant_id bigint NOT NULL REFERENCES merchant (id),
    currency text NOT NULL,
    chain text NOT NULL,  -- of a token, else ''
    number int NOT NULL CONSTRAINT statement_number CHECK (number > 0),
    day date NOT NULL,
    time_zone text NOT NULL,
    opening_minor numeric(78) NOT NULL,
    payments_minor numeric(78) NOT NULL,
    fees_minor numeric(78) NOT NULL,
    tax_minor numeric(78) NOT NULL,
    refunds_minor numeric(78) NOT NULL,
    disputes_minor numeric(78) NOT NULL,
    adjustments_minor numeric(78) NOT NULL,
    payouts_minor numeric(78) NOT NULL,
    closing_minor numeric(78) NOT NULL,
    -- Which entries of the ledger it has: those with numbers from `first_number` to `last_number`
    -- made before `until_at`, but for those that an earlier closing had: up to `closed_number`
    -- and made before `closed_at`.
    first_number bigint NOT NULL,
    last_number bigint NOT NULL,
    until_at timestamptz NOT NULL,
    closed_number bigint NOT NULL,
    closed_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock(),
    CONSTRAINT statement_sum CHECK (closing_minor = opening_minor + payments_minor + fees_minor
        + tax_minor + refunds_minor + disputes_minor + adjustments_minor + payouts_minor),
    CONSTRAINT statement_order UNIQUE (merchant_id, currency, chain, number)
);
CREATE INDEX statement_of_merchant ON statement (merchant_id, id);
CREATE FUNCTION statement_follows() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before statement;
BEGIN
    SELECT * INTO before FROM statement s
    WHERE s.merchant_id = NEW.merchant_id AND s.currency = NEW.currency AND s.chain = NEW.chain
        AND s.number = NEW.number - 1;
    IF NEW.opening_minor <> coalesce(before.closing_minor, 0) OR NEW.day <= before.day
        OR (NEW.number > 1 AND before.id IS NULL) THEN
        RAISE EXCEPTION 'a statement begins where the one before has ended'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'statement_follows';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER statement_follows BEFORE INSERT ON statement
    FOR EACH ROW EXECUTE FUNCTION statement_follows();
CREATE FUNCTION statement_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a statement is never changed'
        USING ERRCODE = 'check_violation', CONSTRAINT = 'statement_frozen';
END $$;
CREATE TRIGGER statement_frozen BEFORE UPDATE OR DELETE OR TRUNCATE ON statement
    FOR EACH STATEMENT EXECUTE FUNCTION statement_frozen();

-- Up to where each merchant's entries are in statements; the words are those of `statement`.
CREATE TABLE statement_close (
    merchant_id bigint PRIMARY KEY REFERENCES merchant (id),
    day date NOT NULL,
    closed_at timestamptz NOT NULL,
    closed_number bigint NOT NULL,
    next_number bigint NOT NULL
);
