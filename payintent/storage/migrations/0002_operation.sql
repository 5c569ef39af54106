-- What the operator manages: who may take payments where, at which rate, and who is kept out.

ALTER TABLE merchant
    ADD COLUMN locale text NOT NULL DEFAULT 'en'
        CONSTRAINT merchant_locale CHECK (length(locale) BETWEEN 2 AND 35),
    ADD COLUMN activation text NOT NULL DEFAULT 'NEW' CONSTRAINT merchant_activation CHECK (
        activation IN ('NEW', 'REQUESTED', 'APPLIED', 'VALIDATED', 'ACTIVE', 'SUSPENDED')
    ),
    ADD COLUMN activated_at timestamptz,
    ADD COLUMN contract text NOT NULL DEFAULT '',  -- where the contract is filed
    ADD COLUMN kyc text NOT NULL DEFAULT '',  -- and where the check of the merchant is
    ADD COLUMN requested_countries text[],
    ADD COLUMN requested_currencies text[],
    ADD COLUMN countries text[],  -- where it takes payments; NULL: wherever its methods do
    ADD COLUMN currencies text[],
    ADD COLUMN market_changed_at timestamptz NOT NULL DEFAULT clock();
UPDATE merchant SET activation = 'ACTIVE', activated_at = clock();
ALTER TABLE merchant
    ADD CONSTRAINT merchant_activated CHECK (activation <> 'ACTIVE' OR activated_at IS NOT NULL),
    ADD CONSTRAINT merchant_requested CHECK (
        activation <> 'REQUESTED' OR (contract <> '' AND kyc <> ''
            AND coalesce(cardinality(requested_countries), 0) > 0
            AND coalesce(cardinality(requested_currencies), 0) > 0)
    );

CREATE TABLE provider (
    name text PRIMARY KEY,
    wire_name text NOT NULL  -- what merchants and buyers read, in `provider`
        CONSTRAINT provider_wire_name CHECK (wire_name ~ '^[a-z0-9][a-z0-9_-]{0,31}$'),
    enabled boolean NOT NULL DEFAULT true,
    changed_at timestamptz NOT NULL DEFAULT clock()
);
INSERT INTO provider (name, wire_name)
SELECT name, name
FROM unnest(ARRAY['simulator', 'stripe', 'ecpay', '2c2p', 'gateway_contract']) AS name;
INSERT INTO provider (name, wire_name)
SELECT DISTINCT provider, provider FROM provider_account
ON CONFLICT DO NOTHING;
ALTER TABLE session ADD COLUMN provider_name text;  -- the wire name when it was selected
UPDATE session SET provider_name = provider;
ALTER TABLE session ALTER COLUMN provider_name SET NOT NULL;
ALTER TABLE provider_account
    ADD COLUMN name text NOT NULL DEFAULT '',
    ADD COLUMN changed_at timestamptz NOT NULL DEFAULT clock(),
    ADD CONSTRAINT provider_account_provider FOREIGN KEY (provider) REFERENCES provider;
ALTER TABLE payment_method
    ADD COLUMN market_changed_at timestamptz NOT NULL DEFAULT clock();

-- When what a catalog shows has last changed; a price is not shown there.
CREATE FUNCTION market_changed() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    NEW.market_changed_at = clock();
    RETURN NEW;
END $$;
CREATE TRIGGER merchant_market_changed BEFORE UPDATE ON merchant
    FOR EACH ROW WHEN (
        (OLD.countries, OLD.currencies, OLD.activation IN ('APPLIED', 'VALIDATED', 'ACTIVE'))
        IS DISTINCT FROM
        (NEW.countries, NEW.currencies, NEW.activation IN ('APPLIED', 'VALIDATED', 'ACTIVE'))
    )
    EXECUTE FUNCTION market_changed();
CREATE TRIGGER payment_method_market_changed BEFORE UPDATE ON payment_method
    FOR EACH ROW WHEN (
        (OLD.countries, OLD.currencies, OLD.enabled)
        IS DISTINCT FROM (NEW.countries, NEW.currencies, NEW.enabled)
    )
    EXECUTE FUNCTION market_changed();

CREATE TABLE restriction (
    type text NOT NULL CONSTRAINT restriction_type CHECK (type IN ('CRYPTO', 'ONRAMP')),
    country text NOT NULL CONSTRAINT restriction_country CHECK (country ~ '^[A-Z]{2}$'),
    active boolean NOT NULL DEFAULT true,  -- lifted ones stay: a catalog's freshness needs them
    changed_at timestamptz NOT NULL DEFAULT clock(),
    PRIMARY KEY (type, country)
);
INSERT INTO restriction (type, country) VALUES ('ONRAMP', 'KR');

CREATE TABLE fraud_rule (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL CONSTRAINT fraud_rule_kind CHECK (kind IN (
        'COUNTRY', 'PAYER', 'EMAIL', 'ADDRESS', 'PAYER_VELOCITY', 'ADDRESS_VELOCITY'
    )),
    merchant_id bigint REFERENCES merchant,  -- NULL: every merchant
    value text,  -- what a list matches
    count_max int CONSTRAINT fraud_rule_count_max CHECK (count_max >= 1),
    window_s int CONSTRAINT fraud_rule_window_s CHECK (window_s BETWEEN 1 AND 2592000),
    code text NOT NULL CONSTRAINT fraud_rule_code CHECK (code ~ '^[A-Z][A-Z0-9_]{0,63}$'),
    level text NOT NULL CONSTRAINT fraud_rule_level CHECK (level IN ('LOW', 'MEDIUM', 'HIGH', 'CRITICAL')),
    score int NOT NULL CONSTRAINT fraud_rule_score CHECK (score BETWEEN 0 AND 100),
    enabled boolean NOT NULL DEFAULT true,
    created_at timestamptz NOT NULL DEFAULT clock(),
    CONSTRAINT fraud_rule_shape CHECK (
        CASE WHEN kind IN ('PAYER_VELOCITY', 'ADDRESS_VELOCITY')
            THEN value IS NULL AND count_max IS NOT NULL AND window_s IS NOT NULL
            ELSE value IS NOT NULL AND count_max IS NULL AND window_s IS NULL
        END
    )
);

-- What was denied; one row for each rule that a checkout met.
CREATE TABLE fraud_decision (
    id uuid PRIMARY KEY,
    merchant_id bigint NOT NULL,
    payment_id uuid,  -- NULL: a create, which made no payment
    rule_id bigint NOT NULL REFERENCES fraud_rule,
    code text NOT NULL,
    level text NOT NULL,
    score int NOT NULL,
    decided_at timestamptz NOT NULL DEFAULT clock()
);
CREATE UNIQUE INDEX fraud_decision_once ON fraud_decision (payment_id, rule_id)
    WHERE payment_id IS NOT NULL;
CREATE INDEX fraud_decision_decided ON fraud_decision (decided_at);

-- Selections by address, kept only while a rule counts them; the address as a keyed digest.
CREATE TABLE buyer_attempt (
    address_digest bytea NOT NULL,
    merchant_id bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT clock()
);
CREATE INDEX buyer_attempt_address ON buyer_attempt (address_digest, at);
CREATE INDEX buyer_attempt_at ON buyer_attempt (at);

-- A key keeps what its request did: a payment, or a denial that made none.
ALTER TABLE idempotency
    ALTER COLUMN payment_id DROP NOT NULL,
    ADD COLUMN denial json,
    ADD CONSTRAINT idempotency_outcome CHECK (num_nonnulls(payment_id, denial) = 1);

CREATE TABLE rate_limit (
    merchant_id bigint NOT NULL REFERENCES merchant,
    class text NOT NULL CONSTRAINT rate_limit_class CHECK (class IN ('create', 'read')),
    per_s int NOT NULL CONSTRAINT rate_limit_per_s CHECK (per_s BETWEEN 1 AND 1000000),
    burst int NOT NULL CONSTRAINT rate_limit_burst CHECK (burst BETWEEN 1 AND 10000000),
    PRIMARY KEY (merchant_id, class)
);

-- Where each merchant's bucket stands (GCRA): when it will be full again, in seconds of the epoch.
-- Not logged: after a crash every bucket is full, which is what it would soon be anyway.
CREATE UNLOGGED TABLE rate_state (
    merchant_id bigint NOT NULL,
    class text NOT NULL,
    full_at numeric NOT NULL,
    granted int NOT NULL,  -- by the last statement, for its RETURNING
    PRIMARY KEY (merchant_id, class)
) WITH (fillfactor = 50);

-- Who changed what, and why; written with the change.
CREATE TABLE audit (
    id uuid PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock(),
    who text NOT NULL CONSTRAINT audit_who CHECK (who <> ''),
    why text NOT NULL,
    action text NOT NULL,
    merchant_id bigint,
    details json NOT NULL
);
CREATE INDEX audit_merchant ON audit (merchant_id, id);

CREATE FUNCTION audit_append_only() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is only ever added to'
        USING ERRCODE = 'check_violation', CONSTRAINT = 'audit_append_only';
END $$;
CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION audit_append_only();

-- The keys of the ring that have written, so that nobody works without one that is still needed.
CREATE TABLE ring_key (
    name text PRIMARY KEY,
    mark text NOT NULL,  -- tells the key from another of the same name
    since timestamptz NOT NULL DEFAULT clock(),
    retired_at timestamptz
);
-- Of the pepper alone: the old fingerprint also held a ring key, which could then never go.
ALTER TABLE installation
    DROP COLUMN secrets_fingerprint,
    ADD COLUMN pepper_mark text;

-- Lists are read newest first, at a flat cost whatever the filter; a payer may be everybody.
-- Nothing is NULL here. It says that no two of these indexes have one order, so that a list which
-- asks for the order of one gets that one, whatever the planner believes of the data.
CREATE INDEX payment_listed ON payment (merchant_id, created_at, id);
CREATE INDEX payment_listed_kind
    ON payment (merchant_id, currency, status, created_at NULLS FIRST, id);
CREATE INDEX payment_listed_payer
    ON payment (merchant_id, payer_uid, currency, status, created_at, id NULLS FIRST);
