-- Money goes back: what was asked for, what is promised meanwhile, and which gateways answer.

-- Money that names no session of ours is a capture too, so that it can be given back.
ALTER TABLE capture
    ALTER COLUMN session_id DROP NOT NULL,
    ALTER COLUMN payment_id DROP NOT NULL,
    ADD COLUMN receipt_id uuid REFERENCES chain_receipt,
    ADD CONSTRAINT capture_owned CHECK ((session_id IS NULL) = (payment_id IS NULL)),
    ADD CONSTRAINT capture_known CHECK (session_id IS NOT NULL OR receipt_id IS NOT NULL);
UPDATE capture c
SET receipt_id = r.id
FROM chain_receipt r
WHERE r.account_id = c.account_id
    AND c.reference = '0x' || encode(r.tx_hash, 'hex') || ':' || r.log_index;
INSERT INTO capture (id, account_id, reference, currency, amount_minor, credited, captured_at,
    receipt_id)
SELECT gen_random_uuid(), r.account_id, '0x' || encode(r.tx_hash, 'hex') || ':' || r.log_index,
    coalesce(t.symbol, '0x' || encode(r.token, 'hex')), r.amount, false, r.final_at, r.id
FROM chain_receipt r
LEFT JOIN chain_token t ON t.chain = r.chain AND t.address = r.token
WHERE r.disposition = 'unknown_uuid'
    AND NOT EXISTS (SELECT FROM capture c WHERE c.receipt_id = r.id);
UPDATE money_case m
SET capture_id = c.id
FROM capture c
WHERE c.receipt_id = m.receipt_id AND m.capture_id IS NULL;
CREATE UNIQUE INDEX capture_receipt ON capture (receipt_id) WHERE receipt_id IS NOT NULL;

-- What is promised back and not given yet; a settled refund moves it to `refunded_amount`.
ALTER TABLE payment
    ADD COLUMN reserved_amount numeric(38, 18) NOT NULL DEFAULT 0
        CONSTRAINT payment_reserved CHECK (reserved_amount >= 0),
    ADD CONSTRAINT payment_remainder CHECK (refunded_amount + reserved_amount <= amount),
    ADD CONSTRAINT payment_refund_state CHECK (
        CASE status
            WHEN 'REFUNDED' THEN refunded_amount = amount
            WHEN 'PARTIALLY_REFUNDED' THEN refunded_amount > 0 AND refunded_amount < amount
            ELSE refunded_amount = 0
        END
    ),
    ADD CONSTRAINT payment_reserved_state CHECK (
        reserved_amount = 0 OR status IN ('PAID', 'PARTIALLY_REFUNDED')
    );

CREATE TABLE refund (
    id uuid PRIMARY KEY,  -- also the provider's idempotency key
    merchant_id bigint,
    payment_id uuid REFERENCES payment,
    capture_id uuid NOT NULL REFERENCES capture,
    case_id uuid REFERENCES money_case,  -- NULL: asked for by the merchant
    amount numeric(38, 18) CONSTRAINT refund_amount CHECK (amount > 0),  -- a part of the payment's
    amount_text text,  -- exactly as sent
    currency text NOT NULL,  -- the payment's; of a case, the capture's
    amount_minor numeric(78, 0) NOT NULL CONSTRAINT refund_amount_minor CHECK (amount_minor > 0),
    reason text CONSTRAINT refund_reason CHECK (length(reason) BETWEEN 1 AND 500),
    destination text,  -- where the money goes, if that is not where it came from
    status text NOT NULL DEFAULT 'PENDING'
        CONSTRAINT refund_status CHECK (status IN ('PENDING', 'SUCCEEDED', 'FAILED')),
    failure_reason text CONSTRAINT refund_failure_reason
        CHECK (failure_reason IN ('DECLINED', 'REJECTED')),
    step text NOT NULL
        CONSTRAINT refund_step CHECK (step IN ('approval', 'queued', 'sent', 'ended')),
    reference text,  -- the provider's own name for it
    requested_by text NOT NULL,
    approved_by text,
    note text NOT NULL DEFAULT '',  -- of whoever approved or rejected it
    inquiries int NOT NULL DEFAULT 0,
    next_at timestamptz,  -- when somebody looks after it again
    sent_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock(),
    updated_at timestamptz NOT NULL DEFAULT clock(),
    CONSTRAINT refund_ended CHECK ((status = 'PENDING') = (step <> 'ended')),
    CONSTRAINT refund_failed CHECK ((status = 'FAILED') = (failure_reason IS NOT NULL)),
    -- A merchant refunds a part of a payment, a case the money that no payment owns.
    CONSTRAINT refund_owner CHECK (
        (case_id IS NULL) = (amount IS NOT NULL AND amount_text IS NOT NULL
            AND payment_id IS NOT NULL AND merchant_id IS NOT NULL)
    ),
    CONSTRAINT refund_two_persons CHECK (approved_by <> requested_by)
);
CREATE INDEX refund_payment ON refund (payment_id, id) WHERE payment_id IS NOT NULL;
CREATE INDEX refund_capture ON refund (capture_id);
CREATE INDEX refund_due ON refund (next_at) WHERE step IN ('queued', 'sent');
CREATE INDEX refund_waiting ON refund (id) WHERE step = 'approval';
CREATE UNIQUE INDEX refund_one_of_case ON refund (case_id) WHERE status <> 'FAILED';
CREATE INDEX refund_case ON refund (case_id, id) WHERE case_id IS NOT NULL;
-- What a provider's own list is compared with.
CREATE INDEX refund_reference ON refund (reference) WHERE reference IS NOT NULL;
CREATE INDEX refund_done ON refund (updated_at) WHERE status = 'SUCCEEDED';
CREATE INDEX capture_at ON capture USING brin (captured_at);

-- What a refund is never changes; how far it is does.
CREATE FUNCTION refund_frozen() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'refund % is what it was asked for', OLD.id
        USING ERRCODE = 'check_violation', CONSTRAINT = 'refund_frozen';
END $$;
CREATE TRIGGER refund_frozen
    BEFORE UPDATE OF merchant_id, payment_id, capture_id, case_id, amount, amount_text, currency,
        amount_minor, reason, destination, requested_by, created_at ON refund
    FOR EACH ROW EXECUTE FUNCTION refund_frozen();

ALTER TABLE idempotency ADD COLUMN refund_id uuid;  -- beside its payment
ALTER TABLE callback ADD COLUMN refund_id uuid;  -- that it is about

-- A case may be about a refund, or about a line of a settlement file that nobody here knows.
ALTER TABLE money_case
    ADD COLUMN refund_id uuid REFERENCES refund,
    ADD COLUMN subject text CONSTRAINT money_case_subject CHECK (length(subject) BETWEEN 1 AND 300),
    DROP CONSTRAINT money_case_once,
    ADD CONSTRAINT money_case_once
        UNIQUE NULLS NOT DISTINCT (session_id, capture_id, receipt_id, refund_id, subject, kind),
    DROP CONSTRAINT money_case_about,
    ADD CONSTRAINT money_case_about CHECK (
        num_nonnulls(session_id, receipt_id, refund_id, subject) > 0
    );

-- Attempts that a gateway declined while it lets the buyer try again.
ALTER TABLE session ADD COLUMN declines int NOT NULL DEFAULT 0;

-- Give back at once what no payment may own.
ALTER TABLE merchant ADD COLUMN auto_refund boolean NOT NULL DEFAULT false;

-- Gateways that do not answer; a row goes when they do again.
CREATE TABLE gateway_outage (
    account_id bigint NOT NULL REFERENCES provider_account,
    channel text NOT NULL
        CONSTRAINT gateway_outage_channel CHECK (channel IN ('sessions', 'refunds')),
    trips int NOT NULL DEFAULT 1,
    since timestamptz NOT NULL DEFAULT clock(),
    until timestamptz NOT NULL,  -- then somebody may try
    probed_at timestamptz,  -- by whom the others wait for
    PRIMARY KEY (account_id, channel)
);

-- Refunds on chains: who signs them, and from which amount on a second person must agree.
ALTER TABLE chain
    ADD COLUMN refunders bytea[] NOT NULL DEFAULT '{}',  -- whose refunds are ours; the last signs
    ADD COLUMN refund_approval_above numeric(38, 18) NOT NULL DEFAULT 1000
        CONSTRAINT chain_refund_approval CHECK (refund_approval_above >= 0);

-- Finalized `Refunded` logs of our contracts, by senders of ours or of others.
CREATE TABLE chain_refund (
    id uuid PRIMARY KEY,
    chain text NOT NULL REFERENCES chain,
    account_id bigint NOT NULL REFERENCES chain_contract,
    block bigint NOT NULL,
    tx_hash bytea NOT NULL,
    log_index int NOT NULL,
    uuid bytea NOT NULL,
    refund_ref uuid NOT NULL,  -- our refund's id, if it is ours: anybody can write any
    token bytea NOT NULL,
    amount numeric(78, 0) NOT NULL,
    destination bytea NOT NULL,
    sender bytea NOT NULL,
    disposition text CONSTRAINT chain_refund_disposition CHECK (  -- NULL: nobody has judged it yet
        disposition IN ('settles', 'unknown', 'foreign', 'mismatched', 'twice')
    ),
    refund_id uuid REFERENCES refund,  -- that it settles
    final_at timestamptz NOT NULL,
    CONSTRAINT chain_refund_once UNIQUE (chain, tx_hash, log_index),
    CONSTRAINT chain_refund_settled CHECK (
        (refund_id IS NOT NULL) = (disposition IS NOT DISTINCT FROM 'settles')
    )
);
CREATE UNIQUE INDEX chain_refund_settles ON chain_refund (refund_id) WHERE refund_id IS NOT NULL;
CREATE INDEX chain_refund_ref ON chain_refund (refund_ref);
CREATE INDEX chain_refund_new ON chain_refund (chain, block, log_index)
    WHERE disposition IS NULL;
CREATE INDEX refund_on_chain ON refund (capture_id)
    WHERE step = 'sent' AND destination IS NOT NULL AND next_at IS NOT NULL;

-- What a signer was asked for. Whoever is asked first to send a refund sends it always: a contract
-- does it once for each sender, so that another one's would be a second refund.
CREATE TABLE chain_refund_try (
    refund_id uuid PRIMARY KEY,
    sender bytea NOT NULL CONSTRAINT chain_refund_try_sender CHECK (octet_length(sender) = 20),
    tx_hash bytea,  -- the last one that was told
    asked_at timestamptz NOT NULL DEFAULT clock()
);

-- Where a session's token was when it was billed: what an operator changes is for new sessions.
ALTER TABLE session ADD COLUMN token_address bytea;
UPDATE session s
SET token_address = t.address
FROM chain_token t
WHERE t.chain = s.chain AND t.symbol = s.token;
CREATE TRIGGER session_token_frozen BEFORE UPDATE OF token_address ON session
    FOR EACH ROW EXECUTE FUNCTION session_quote_frozen();
