-- The service's one clock: TTLs, leases and schedules read it, never a process's. Milliseconds, as
-- on the wire. The sandbox and the tests move time by replacing this function; plans follow.
CREATE FUNCTION clock() RETURNS timestamptz
LANGUAGE sql STABLE
RETURN date_trunc('milliseconds', statement_timestamp());

-- A process with another pepper or key ring must not start: it could read nothing it finds here.
CREATE TABLE installation (
    only_one boolean PRIMARY KEY DEFAULT true CONSTRAINT installation_only_one CHECK (only_one),
    secrets_fingerprint text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock()
);

CREATE TABLE merchant (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL CONSTRAINT merchant_name CHECK (length(name) BETWEEN 1 AND 200),
    callback_url text,
    tax_manager text NOT NULL DEFAULT 'NONE'
        CONSTRAINT merchant_tax_manager CHECK (tax_manager IN ('NONE', 'SERVICE')),
    default_country text NOT NULL DEFAULT 'US'
        CONSTRAINT merchant_default_country CHECK (length(default_country) = 2),
    logo_url text,
    support_url text,
    return_url text,
    allowed_origins text[] NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT clock()
);

CREATE TABLE callback_secret (
    id uuid PRIMARY KEY,
    merchant_id bigint NOT NULL REFERENCES merchant,
    sealed bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock(),
    expires_at timestamptz
);
CREATE INDEX callback_secret_merchant ON callback_secret (merchant_id, created_at DESC);

CREATE TABLE api_key (
    public_id text PRIMARY KEY CONSTRAINT api_key_public_id CHECK (length(public_id) = 8),
    merchant_id bigint NOT NULL REFERENCES merchant,
    name text NOT NULL,
    digest bytea NOT NULL CONSTRAINT api_key_digest CHECK (octet_length(digest) = 32),
    created_at timestamptz NOT NULL DEFAULT clock(),
    revoked_at timestamptz
);
CREATE INDEX api_key_merchant ON api_key (merchant_id);

-- Named, so that who did what is known.
CREATE TABLE operator_token (
    public_id text PRIMARY KEY CONSTRAINT operator_token_public_id CHECK (length(public_id) = 8),
    name text NOT NULL CONSTRAINT operator_token_name CHECK (length(name) BETWEEN 1 AND 100),
    digest bytea NOT NULL CONSTRAINT operator_token_digest CHECK (octet_length(digest) = 32),
    created_at timestamptz NOT NULL DEFAULT clock(),
    revoked_at timestamptz
);

CREATE TABLE provider_account (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    provider text NOT NULL,
    merchant_id bigint REFERENCES merchant,  -- NULL: the platform's
    base_url text NOT NULL,
    sealed bytea,  -- NULL only between the insert and the seal, which is bound to the id
    enabled boolean NOT NULL DEFAULT true,
    created_at timestamptz NOT NULL DEFAULT clock()
);

CREATE TABLE payment_method (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    merchant_id bigint NOT NULL REFERENCES merchant,
    account_id bigint NOT NULL REFERENCES provider_account,
    kind text NOT NULL
        CONSTRAINT payment_method_kind CHECK (kind IN ('card', 'redirect', 'qr', 'onchain')),
    label text NOT NULL,
    currencies text[] NOT NULL,
    countries text[],  -- NULL: all
    chain text,
    token text,
    fee_mode text NOT NULL DEFAULT 'INCLUSIVE'
        CONSTRAINT payment_method_fee_mode CHECK (fee_mode IN ('INCLUSIVE', 'EXCLUSIVE')),
    fee_rate numeric(9, 8) NOT NULL DEFAULT 0
        CONSTRAINT payment_method_fee_rate CHECK (fee_rate BETWEEN 0 AND 1),
    position int NOT NULL DEFAULT 0,
    enabled boolean NOT NULL DEFAULT true
);
CREATE INDEX payment_method_merchant ON payment_method (merchant_id, position, id);

CREATE TABLE tax_rate (
    country text PRIMARY KEY CONSTRAINT tax_rate_country CHECK (length(country) = 2),
    rate numeric(9, 8) NOT NULL CONSTRAINT tax_rate_rate CHECK (rate BETWEEN 0 AND 1)
);

-- No foreign key to merchant: merchants are never deleted, and 32 creates a time sharing a lock on
-- one merchant's row would cost more than the insert.
CREATE TABLE payment (
    id uuid PRIMARY KEY,
    merchant_id bigint NOT NULL,
    checkout_id text NOT NULL,
    status text NOT NULL DEFAULT 'PENDING' CONSTRAINT payment_status CHECK (status IN (
        'PENDING', 'PROCESSING', 'PAID', 'FAILED', 'EXPIRED', 'CANCELLED',
        'PARTIALLY_REFUNDED', 'REFUNDED'
    )),
    version int NOT NULL DEFAULT 1,
    currency text NOT NULL,
    amount numeric(38, 18) NOT NULL CONSTRAINT payment_amount CHECK (amount > 0),
    amount_text text NOT NULL,  -- exactly as sent
    payer_uid text NOT NULL
        CONSTRAINT payment_payer_uid CHECK (length(payer_uid) BETWEEN 1 AND 255),
    payer_email text,
    include_pegged_assets boolean NOT NULL,
    metadata json NOT NULL,  -- json keeps the bytes, jsonb would not
    tax_manager text NOT NULL
        CONSTRAINT payment_tax_manager CHECK (tax_manager IN ('NONE', 'SERVICE')),
    session_id uuid,  -- the current session, whose quote is the payment's
    receipt_id uuid,
    failure_reason text,
    refunded_amount numeric(38, 18) NOT NULL DEFAULT 0
        CONSTRAINT payment_refunded CHECK (refunded_amount BETWEEN 0 AND amount),
    expires_at timestamptz NOT NULL,
    paid_at timestamptz,
    failed_at timestamptz,
    expired_at timestamptz,
    cancelled_at timestamptz,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    CONSTRAINT payment_paid CHECK (
        (status IN ('PAID', 'PARTIALLY_REFUNDED', 'REFUNDED'))
        = (paid_at IS NOT NULL AND receipt_id IS NOT NULL)
    ),
    CONSTRAINT payment_failed CHECK (
        (status = 'FAILED') = (failed_at IS NOT NULL AND failure_reason IS NOT NULL)
    ),
    CONSTRAINT payment_expired CHECK ((status = 'EXPIRED') = (expired_at IS NOT NULL)),
    CONSTRAINT payment_cancelled CHECK ((status = 'CANCELLED') = (cancelled_at IS NOT NULL)),
    CONSTRAINT payment_has_session CHECK (
        session_id IS NOT NULL OR status IN ('PENDING', 'EXPIRED', 'CANCELLED')
    )
);
CREATE INDEX payment_due ON payment (expires_at) WHERE status IN ('PENDING', 'PROCESSING');

-- The arrows of domain/payment.py once more, so that no statement can draw another one.
CREATE FUNCTION payment_arrow() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF (OLD.status, NEW.status) IN (
        ('PENDING', 'PROCESSING'), ('PENDING', 'EXPIRED'), ('PENDING', 'CANCELLED'),
        ('PROCESSING', 'PAID'), ('PROCESSING', 'FAILED'), ('PROCESSING', 'EXPIRED'),
        ('PAID', 'PARTIALLY_REFUNDED'), ('PAID', 'REFUNDED'), ('PARTIALLY_REFUNDED', 'REFUNDED')
    ) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'payment % cannot go from % to %', OLD.id, OLD.status, NEW.status
        USING ERRCODE = 'check_violation', CONSTRAINT = 'payment_arrow';
END $$;
CREATE TRIGGER payment_arrow BEFORE UPDATE OF status ON payment
    FOR EACH ROW WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION payment_arrow();

-- Apart from payment, so that a capability stays unique when payment is partitioned by its id.
-- No foreign key: both rows are written by one statement and never deleted.
CREATE TABLE checkout (
    id text PRIMARY KEY,
    payment_id uuid NOT NULL
);

CREATE TABLE idempotency (
    merchant_id bigint NOT NULL,
    operation text NOT NULL,
    key uuid NOT NULL,
    request_hash bytea NOT NULL,
    payment_id uuid NOT NULL,
    country text,  -- the one thing of a create's answer that the payment does not keep
    created_at timestamptz NOT NULL,
    PRIMARY KEY (merchant_id, operation, key)
);
CREATE INDEX idempotency_created ON idempotency (created_at);

CREATE TABLE session (
    id uuid PRIMARY KEY,
    payment_id uuid NOT NULL REFERENCES payment,
    account_id bigint NOT NULL REFERENCES provider_account,
    payment_method_id bigint NOT NULL REFERENCES payment_method,
    provider text NOT NULL,
    life text NOT NULL DEFAULT 'opening'
        CONSTRAINT session_life CHECK (life IN ('opening', 'open', 'closing', 'ended')),
    outcome text,  -- how it ended, in the provider's word
    kind text NOT NULL,
    label text NOT NULL,
    country text NOT NULL,
    chain text,
    token text,
    currency text NOT NULL,
    amount text NOT NULL,
    fee_mode text NOT NULL,
    fee_rate text NOT NULL,
    fee_amount text NOT NULL,
    estimated_tax text NOT NULL,
    total_amount text NOT NULL,
    total_minor numeric(78, 0) NOT NULL CONSTRAINT session_total CHECK (total_minor > 0),
    return_url text,
    reference text,  -- the provider's own name for it
    next_action json,
    inquire_at timestamptz,  -- when the janitor asks next
    inquiries int NOT NULL DEFAULT 0,
    opened_at timestamptz NOT NULL DEFAULT clock(),
    closing_at timestamptz,
    ended_at timestamptz,
    CONSTRAINT session_ended CHECK (
        (life = 'ended') = (ended_at IS NOT NULL AND outcome IS NOT NULL)
    )
);
CREATE UNIQUE INDEX session_one_opening ON session (payment_id) WHERE life = 'opening';
CREATE INDEX session_payment ON session (payment_id);
CREATE INDEX session_inquire ON session (inquire_at) WHERE life <> 'ended';
ALTER TABLE payment ADD CONSTRAINT payment_session FOREIGN KEY (session_id) REFERENCES session;

-- What the buyer agreed to is what the provider was asked for: a quote never changes.
CREATE FUNCTION session_quote_frozen() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the quote of session % is frozen', OLD.id
        USING ERRCODE = 'check_violation', CONSTRAINT = 'session_quote_frozen';
END $$;
CREATE TRIGGER session_quote_frozen
    BEFORE UPDATE OF payment_id, account_id, payment_method_id, provider, currency, amount,
        fee_mode, fee_rate, fee_amount, estimated_tax, total_amount, total_minor ON session
    FOR EACH ROW EXECUTE FUNCTION session_quote_frozen();

-- Every verified callback once. One for a session nobody knows waits here with `applied_at` NULL.
CREATE TABLE callback (
    account_id bigint NOT NULL REFERENCES provider_account,
    callback_id text NOT NULL,
    session_id uuid,
    report json,
    body bytea NOT NULL,
    received_at timestamptz NOT NULL DEFAULT clock(),
    applied_at timestamptz,
    PRIMARY KEY (account_id, callback_id)
);
CREATE INDEX callback_waiting ON callback (session_id) WHERE applied_at IS NULL;

-- Every capture the world reports; money is refunded from captures, so it cannot be paid back twice.
CREATE TABLE capture (
    id uuid PRIMARY KEY,
    account_id bigint NOT NULL REFERENCES provider_account,
    reference text NOT NULL,
    session_id uuid NOT NULL REFERENCES session,
    payment_id uuid NOT NULL REFERENCES payment,
    currency text NOT NULL,
    amount_minor numeric(78, 0) NOT NULL CONSTRAINT capture_amount CHECK (amount_minor >= 0),
    credited boolean NOT NULL,  -- it is the one that made the payment PAID
    refunded_minor numeric(78, 0) NOT NULL DEFAULT 0
        CONSTRAINT capture_refunded_minor CHECK (refunded_minor >= 0),
    reserved_minor numeric(78, 0) NOT NULL DEFAULT 0
        CONSTRAINT capture_reserved_minor CHECK (reserved_minor >= 0),
    captured_at timestamptz NOT NULL,
    CONSTRAINT capture_reference UNIQUE (account_id, reference),
    CONSTRAINT capture_remainder CHECK (refunded_minor + reserved_minor <= amount_minor)
);
CREATE INDEX capture_payment ON capture (payment_id);
CREATE UNIQUE INDEX capture_one_credited ON capture (payment_id) WHERE credited;

-- Money that no payment may own, and what needs a person.
CREATE TABLE money_case (
    id uuid PRIMARY KEY,
    kind text NOT NULL CONSTRAINT money_case_kind CHECK (kind IN (
        'ORPHAN_CAPTURE', 'LATE_PAYMENT', 'DOUBLE_PAYMENT', 'AMOUNT_MISMATCH', 'TOKEN_MISMATCH',
        'UNKNOWN_REFERENCE', 'REFUND_REVERSED', 'RECONCILIATION'
    )),
    merchant_id bigint NOT NULL REFERENCES merchant,
    payment_id uuid NOT NULL REFERENCES payment,
    session_id uuid NOT NULL REFERENCES session,
    capture_id uuid REFERENCES capture,
    status text NOT NULL DEFAULT 'OPEN' CONSTRAINT money_case_status
        CHECK (status IN ('OPEN', 'REFUNDED', 'ACCEPTED', 'DISMISSED')),
    opened_at timestamptz NOT NULL,
    CONSTRAINT money_case_once UNIQUE NULLS NOT DISTINCT (session_id, capture_id, kind)
);

-- The outbox: written by the transaction that changes the status, its bytes never touched again.
CREATE TABLE event (
    id uuid PRIMARY KEY,  -- also the webhook-id
    payment_id uuid NOT NULL REFERENCES payment,
    merchant_id bigint NOT NULL,
    type text NOT NULL CONSTRAINT event_type CHECK (type IN (
        'payment.completed', 'payment.failed', 'payment.expired', 'payment.cancelled'
    )),
    body text NOT NULL,
    occurred_at timestamptz NOT NULL
);
-- All four types end a payment's life, and a life ends once.
CREATE UNIQUE INDEX event_one_terminal ON event (payment_id);
CREATE INDEX event_merchant ON event (merchant_id, id);

CREATE TABLE delivery (
    event_id uuid PRIMARY KEY REFERENCES event,
    merchant_id bigint NOT NULL,
    state text NOT NULL CONSTRAINT delivery_state
        CHECK (state IN ('pending', 'delivered', 'dead', 'skipped')),
    attempts int NOT NULL DEFAULT 0,
    next_at timestamptz NOT NULL,  -- while an attempt runs: when its lease ends
    lease_until timestamptz NOT NULL DEFAULT '-infinity',
    delivered_at timestamptz
) WITH (fillfactor = 70);
CREATE INDEX delivery_due ON delivery (merchant_id, next_at) WHERE state = 'pending';

CREATE TABLE attempt (
    id uuid PRIMARY KEY,
    event_id uuid NOT NULL REFERENCES event,
    number int NOT NULL,
    outcome text NOT NULL,
    status int,
    detail text NOT NULL,
    answer text NOT NULL,
    duration_ms int NOT NULL,
    started_at timestamptz NOT NULL
);
CREATE INDEX attempt_event ON attempt (event_id, id);
