-- The test gateway (decision 98): a gateway inside the service, of test sides alone. What it keeps is
-- tied to accounts of test mode, and so are those to test merchants and their methods.
ALTER TABLE provider_account
    ADD CONSTRAINT provider_account_test_gateway CHECK (provider <> 'test' OR NOT livemode)
        NOT VALID;
-- An account of it for each test side.
CREATE TABLE test_session (
    session_id uuid PRIMARY KEY,
    account_id bigint NOT NULL,
    livemode boolean NOT NULL DEFAULT false CONSTRAINT test_session_livemode CHECK (NOT livemode),
    amount_minor bigint NOT NULL CONSTRAINT test_session_amount CHECK (amount_minor > 0),
    currency text NOT NULL,
    return_url text NOT NULL,
    expires_at timestamptz NOT NULL,
    status text NOT NULL,
    card text,
    decline_code text,
    decides_at timestamptz,  -- when one that is decided later is paid
    captured_minor bigint,  -- what is taken, once it is paid
    captured_currency text,
    dispute text,
    created_at timestamptz NOT NULL DEFAULT clock(),
    CONSTRAINT test_session_status CHECK (
        status IN ('open', 'challenge', 'deciding', 'paid', 'declined', 'cancelled', 'closed')
    ),
    CONSTRAINT test_session_paid CHECK (
        status <> 'paid' OR num_nulls(captured_minor, captured_currency) = 0
    ),
    CONSTRAINT test_session_dispute CHECK (
        dispute IS NULL OR (status = 'paid' AND dispute IN ('open', 'won', 'lost'))
    ),
    CONSTRAINT test_session_mode FOREIGN KEY (account_id, livemode)
        REFERENCES provider_account (id, livemode)
);
CREATE TABLE test_refund (
    refund_id uuid PRIMARY KEY,
    account_id bigint NOT NULL,
    session_id uuid NOT NULL
        CONSTRAINT test_refund_session REFERENCES test_session (session_id),
    amount_minor bigint NOT NULL CONSTRAINT test_refund_amount CHECK (amount_minor > 0),
    state text NOT NULL
        CONSTRAINT test_refund_state CHECK (state IN ('done', 'pending', 'declined')),
    done_at timestamptz  -- of one that is pending: when it is done
);
CREATE INDEX test_refund_by_session ON test_refund (session_id);
