-- The schema of version 1.0. Later changes are migrations of their own, 0002 and so on; this file
-- is never edited. Money is `numeric`, in the smallest unit of its currency where a name ends in
-- `_minor`. Every rule that keeps money right is a constraint or a trigger too, so that no
-- statement can break it.

-- The service's only clock: deadlines, leases and schedules read it, never a process's own clock.
-- It has milliseconds, as the API does. The sandbox and the tests move time by replacing this
-- function, and plans follow.
CREATE FUNCTION clock() RETURNS timestamptz
LANGUAGE sql STABLE
RETURN date_trunc('milliseconds', statement_timestamp());

-- Installation
-- ============

-- A process with a different pepper must not start: it could not verify any key or token.
CREATE TABLE installation (
    only_one boolean PRIMARY KEY DEFAULT true CONSTRAINT installation_only_one CHECK (only_one),
    created_at timestamptz NOT NULL DEFAULT clock(),
    -- A fingerprint of the pepper alone, so that keys of the ring can be retired.
    pepper_mark text
);

-- The encryption keys that have been used: a process without one that is still needed does not
-- start.
CREATE TABLE ring_key (
    name text PRIMARY KEY,
    mark text NOT NULL,  -- tells two keys of the same name apart
    since timestamptz NOT NULL DEFAULT clock(),
    retired_at timestamptz
);

-- Merchants and what operators set up
-- ===================================

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
    created_at timestamptz NOT NULL DEFAULT clock(),
    locale text NOT NULL DEFAULT 'en'
        CONSTRAINT merchant_locale CHECK (length(locale) BETWEEN 2 AND 35),
    activation text NOT NULL DEFAULT 'NEW' CONSTRAINT merchant_activation CHECK (
        activation IN ('NEW', 'REQUESTED', 'APPLIED', 'VALIDATED', 'ACTIVE', 'SUSPENDED')
    ),
    activated_at timestamptz,
    contract text NOT NULL DEFAULT '',  -- where the contract is filed
    kyc text NOT NULL DEFAULT '',  -- where the identity check is filed
    requested_countries text[],
    requested_currencies text[],
    countries text[],  -- where it accepts payments; NULL: wherever its methods do
    currencies text[],
    market_changed_at timestamptz NOT NULL DEFAULT clock(),
    -- Refund captures that belong to no payment automatically.
    auto_refund boolean NOT NULL DEFAULT true,
    tax_country text NOT NULL DEFAULT 'selection'
        CONSTRAINT merchant_tax_country CHECK (tax_country IN ('selection', 'merchant')),
    -- An exception that the operator makes for a merchant; otherwise webhooks need https.
    allow_http boolean NOT NULL DEFAULT false,
    accent_colour text CONSTRAINT merchant_accent_colour CHECK (accent_colour ~ '^#[0-9a-f]{6}$'),
    terms_url text,
    -- Send receipts to buyers who gave an e-mail address.
    mail_receipts boolean NOT NULL DEFAULT false,
    -- The time zone in which the days of its statements begin and end.
    time_zone text NOT NULL DEFAULT 'UTC'
        CONSTRAINT merchant_time_zone CHECK (time_zone ~ '^[A-Za-z0-9_+/-]{1,64}$'),
    -- A merchant's test side is a merchant too, so whatever refers to a merchant has a mode. The
    -- mode never changes.
    livemode boolean NOT NULL DEFAULT true,
    live_merchant bigint,  -- of a test side: the merchant it belongs to
    -- By currency: the total of refunds at gateways per day that need no second person. A currency
    -- that is not listed has no limit.
    refund_approval_above jsonb NOT NULL DEFAULT '{}'
        CONSTRAINT merchant_refund_approval CHECK (jsonb_typeof(refund_approval_above) = 'object'),
    CONSTRAINT merchant_mode UNIQUE (id, livemode),
    CONSTRAINT merchant_one_test_side UNIQUE (live_merchant),
    CONSTRAINT merchant_live_merchant FOREIGN KEY (live_merchant) REFERENCES merchant,
    CONSTRAINT merchant_activated CHECK (activation <> 'ACTIVE' OR activated_at IS NOT NULL),
    CONSTRAINT merchant_callback_https CHECK (allow_http OR callback_url NOT ILIKE 'http://%'),
    CONSTRAINT merchant_requested CHECK (
        activation <> 'REQUESTED' OR (contract <> '' AND kyc <> ''
        AND coalesce(cardinality(requested_countries), 0) > 0
        AND coalesce(cardinality(requested_currencies), 0) > 0)
    ),
    CONSTRAINT merchant_test_side CHECK (livemode = (live_merchant IS NULL))
);

-- A catalog is as new as the last change of a merchant's or a method's countries and currencies.
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
    revoked_at timestamptz,
    last_used_at timestamptz,  -- to the minute
    -- A key, an account and a method have the mode of their merchant.
    livemode boolean NOT NULL DEFAULT true,
    CONSTRAINT api_key_mode FOREIGN KEY (merchant_id, livemode) REFERENCES merchant (id, livemode)
);
CREATE INDEX api_key_merchant ON api_key (merchant_id);

CREATE TABLE rate_limit (
    merchant_id bigint NOT NULL REFERENCES merchant,
    class text NOT NULL CONSTRAINT rate_limit_class CHECK (class IN ('create', 'read')),
    per_s int NOT NULL CONSTRAINT rate_limit_per_s CHECK (per_s BETWEEN 1 AND 1000000),
    burst int NOT NULL CONSTRAINT rate_limit_burst CHECK (burst BETWEEN 1 AND 10000000),
    PRIMARY KEY (merchant_id, class)
);

CREATE TABLE provider (
    name text PRIMARY KEY,
    wire_name text NOT NULL  -- the name in the API and on pages
        CONSTRAINT provider_wire_name CHECK (wire_name ~ '^[a-z0-9][a-z0-9_-]{0,31}$'),
    enabled boolean NOT NULL DEFAULT true,
    changed_at timestamptz NOT NULL DEFAULT clock()
);
INSERT INTO provider (name, wire_name)
VALUES ('simulator', 'simulator'), ('stripe', 'stripe'), ('ecpay', 'ecpay'), ('2c2p', '2c2p'),
    ('gateway_contract', 'gateway_contract');

CREATE TABLE provider_account (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    provider text NOT NULL,
    merchant_id bigint REFERENCES merchant,  -- NULL: an account of the platform
    base_url text NOT NULL,
    sealed bytea,  -- NULL only until it is sealed, which needs the id
    enabled boolean NOT NULL DEFAULT true,
    created_at timestamptz NOT NULL DEFAULT clock(),
    name text NOT NULL DEFAULT '',
    changed_at timestamptz NOT NULL DEFAULT clock(),
    countries text[]  -- NULL: all that the gateway's adapter supports
        CONSTRAINT provider_account_countries CHECK (cardinality(countries) > 0),
    livemode boolean NOT NULL DEFAULT true,
    CONSTRAINT provider_account_one_mode UNIQUE (id, livemode),
    CONSTRAINT provider_account_mode
        FOREIGN KEY (merchant_id, livemode) REFERENCES merchant (id, livemode),
    CONSTRAINT provider_account_provider FOREIGN KEY (provider) REFERENCES provider (name),
    CONSTRAINT provider_account_test_gateway CHECK (provider <> 'test' OR NOT livemode)
);
CREATE INDEX provider_account_of_merchant ON provider_account (merchant_id)
    WHERE merchant_id IS NOT NULL;

CREATE TABLE chain (
    slug text PRIMARY KEY,
    name text NOT NULL,
    network_id bigint NOT NULL UNIQUE,
    finality text NOT NULL
        CONSTRAINT chain_finality CHECK (finality IN ('finalized', 'confirmations')),
    confirmations int CONSTRAINT chain_confirmations CHECK (confirmations BETWEEN 1 AND 10000),
    instant_finality boolean NOT NULL DEFAULT false,  -- nodes may answer with the latest
    grace_s int NOT NULL,  -- a sighted payment that is this late raises an alarm
    typical_s int NOT NULL,  -- how long finality usually takes
    block_time_ms int NOT NULL,
    coin_symbol text NOT NULL,
    coin_name text NOT NULL,
    wallet_symbol text NOT NULL  -- wallets reject longer symbols
        CONSTRAINT chain_wallet_symbol CHECK (length(wallet_symbol) BETWEEN 1 AND 6),
    public_rpc_urls text[] NOT NULL DEFAULT '{}',  -- for buyers' wallets; workers have their own
    explorer_urls text[] NOT NULL DEFAULT '{}',
    updated_at timestamptz NOT NULL DEFAULT clock(),
    refunders bytea[] NOT NULL DEFAULT '{}',  -- addresses that sign our refunds; the last is in use
    -- Refunds above this total per day need a second person.
    refund_approval_above numeric(38, 18) NOT NULL DEFAULT 1000
        CONSTRAINT chain_refund_approval CHECK (refund_approval_above >= 0),
    -- Gas that automatic refunds may use per day: a refund on Ethereum can cost more than 10 USD.
    auto_refund_gas bigint NOT NULL DEFAULT 3000000
        CONSTRAINT chain_auto_refund_gas CHECK (auto_refund_gas >= 0)
);
INSERT INTO chain (slug, name, network_id, finality, confirmations, grace_s, typical_s,
    block_time_ms, coin_symbol, coin_name, wallet_symbol)
VALUES
    ('ethereum', 'Ethereum', 1, 'finalized', NULL, 2400, 960, 12000, 'ETH', 'Ether', 'ETH'),
    ('bsc', 'BNB Smart Chain', 56, 'finalized', NULL, 600, 4, 750, 'BNB', 'BNB', 'BNB'),
    ('native', 'Native', 612055, 'confirmations', NULL, 600, 30, 2000, 'NATIVED', 'Native dollar',
        'NATVD');

CREATE TABLE chain_token (
    chain text NOT NULL REFERENCES chain,
    symbol text NOT NULL,
    address bytea  -- NULL: not deployed there yet; 20 zeros: the chain's native coin
        CONSTRAINT chain_token_address CHECK (octet_length(address) = 20),
    decimals int NOT NULL CONSTRAINT chain_token_decimals CHECK (decimals BETWEEN 0 AND 18),
    approve_zero_first boolean NOT NULL DEFAULT false,
    minimum numeric(78) NOT NULL DEFAULT 1 CONSTRAINT chain_token_minimum CHECK (minimum > 0),
    enabled boolean NOT NULL DEFAULT true,
    auto_refund_from numeric NOT NULL DEFAULT 1  -- smaller amounts need a person's decision
        CONSTRAINT chain_token_auto_refund_from CHECK (auto_refund_from >= 0),
    PRIMARY KEY (chain, symbol)
);
INSERT INTO chain_token
    (chain, symbol, address, decimals, approve_zero_first, enabled, auto_refund_from)
VALUES
    ('ethereum', 'USDT', '\xdac17f958d2ee523a2206206994597c13d831ec7', 6, true, true, 20),
    ('ethereum', 'USDC', '\xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48', 6, false, false, 20),
    ('bsc', 'USDT', '\x55d398326f99059ff775485246999027b3197955', 18, false, true, 1),
    ('bsc', 'USDC', '\x8ac76a51cc950d9822d68b83fe1ad97b32cd580d', 18, false, false, 1),
    ('native', 'USDT', NULL, 18, false, true, 1),
    ('native', 'NATIVED', '\x0000000000000000000000000000000000000000', 18, false, true, 1);

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
    enabled boolean NOT NULL DEFAULT true,
    market_changed_at timestamptz NOT NULL DEFAULT clock(),
    livemode boolean NOT NULL DEFAULT true,
    -- Limits such as USD:0.50:1000, which replace the gateway's limits for that currency.
    limits text[] NOT NULL DEFAULT '{}'
        CONSTRAINT payment_method_limits CHECK (cardinality(limits) <= 100),
    CONSTRAINT payment_method_account_mode
        FOREIGN KEY (account_id, livemode) REFERENCES provider_account (id, livemode),
    CONSTRAINT payment_method_merchant_mode
        FOREIGN KEY (merchant_id, livemode) REFERENCES merchant (id, livemode)
);
CREATE INDEX payment_method_merchant ON payment_method (merchant_id, position, id);
CREATE TRIGGER payment_method_market_changed BEFORE UPDATE ON payment_method
    FOR EACH ROW WHEN (
        (OLD.countries, OLD.currencies, OLD.enabled)
        IS DISTINCT FROM (NEW.countries, NEW.currencies, NEW.enabled)
    )
    EXECUTE FUNCTION market_changed();

CREATE TABLE tax_rate (
    country text PRIMARY KEY CONSTRAINT tax_rate_country CHECK (length(country) = 2),
    rate numeric(9, 8) NOT NULL CONSTRAINT tax_rate_rate CHECK (rate BETWEEN 0 AND 1)
);

CREATE TABLE restriction (
    type text NOT NULL CONSTRAINT restriction_type CHECK (type IN ('CRYPTO', 'ONRAMP')),
    country text NOT NULL CONSTRAINT restriction_country CHECK (country ~ '^([A-Z]{2}|T1)$'),
    active boolean NOT NULL DEFAULT true,  -- a lifted one dates the last change
    changed_at timestamptz NOT NULL DEFAULT clock(),
    PRIMARY KEY (type, country)
);
INSERT INTO restriction (type, country) VALUES ('ONRAMP', 'KR');

CREATE TABLE fraud_rule (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL CONSTRAINT fraud_rule_kind CHECK (kind IN (
        'COUNTRY', 'PAYER', 'EMAIL', 'ADDRESS', 'PAYER_VELOCITY', 'ADDRESS_VELOCITY'
    )),
    merchant_id bigint REFERENCES merchant,  -- NULL: all merchants
    value text,  -- what the rule matches
    count_max int CONSTRAINT fraud_rule_count_max CHECK (count_max >= 1),
    window_s int CONSTRAINT fraud_rule_window_s CHECK (window_s BETWEEN 1 AND 2592000),
    code text NOT NULL CONSTRAINT fraud_rule_code CHECK (code ~ '^[A-Z][A-Z0-9_]{0,63}$'),
    level text NOT NULL
        CONSTRAINT fraud_rule_level CHECK (level IN ('LOW', 'MEDIUM', 'HIGH', 'CRITICAL')),
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

CREATE TABLE catalog_shown (
    merchant_id bigint NOT NULL REFERENCES merchant,
    viewer text NOT NULL  -- a country that is or was restricted; empty: all others
        CONSTRAINT catalog_shown_viewer CHECK (viewer ~ '^([A-Z]{2})?$'),
    content_hash bytea NOT NULL,
    since timestamptz NOT NULL,
    PRIMARY KEY (merchant_id, viewer)
);

-- Payments
-- ========

-- The merchant's order number, which operators search for. Metadata may hold bytes that `->>`
-- rejects.
CREATE FUNCTION payment_order_id(metadata json) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    RETURN metadata ->> 'order_id';
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END $$;

-- There is no foreign key to merchant: merchants are never deleted, and concurrent creates that
-- share a lock on one merchant's row would cost more than the insert.
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
    metadata json NOT NULL,  -- json keeps the bytes as sent; jsonb would not
    tax_manager text NOT NULL
        CONSTRAINT payment_tax_manager CHECK (tax_manager IN ('NONE', 'SERVICE')),
    session_id uuid,  -- the current session; its quote is the payment's
    receipt_id uuid,
    failure_reason text,
    refunded_amount numeric(38, 18) NOT NULL DEFAULT 0,
    expires_at timestamptz NOT NULL,
    paid_at timestamptz,
    failed_at timestamptz,
    expired_at timestamptz,
    cancelled_at timestamptz,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    -- Refunds that have not succeeded yet; success moves the amount to `refunded_amount`.
    reserved_amount numeric(38, 18) NOT NULL DEFAULT 0
        CONSTRAINT payment_reserved CHECK (reserved_amount >= 0),
    CONSTRAINT payment_cancelled CHECK ((status = 'CANCELLED') = (cancelled_at IS NOT NULL)),
    CONSTRAINT payment_expired CHECK ((status = 'EXPIRED') = (expired_at IS NOT NULL)),
    CONSTRAINT payment_failed CHECK (
        (status = 'FAILED') = (failed_at IS NOT NULL AND failure_reason IS NOT NULL)
    ),
    CONSTRAINT payment_has_session CHECK (
        session_id IS NOT NULL OR status IN ('PENDING', 'EXPIRED', 'CANCELLED')
    ),
    CONSTRAINT payment_paid CHECK (
        (status IN ('PAID', 'PARTIALLY_REFUNDED', 'REFUNDED'))
        = (paid_at IS NOT NULL AND receipt_id IS NOT NULL)
    ),
    CONSTRAINT payment_refund_state CHECK (
        CASE status
        WHEN 'REFUNDED' THEN refunded_amount = amount
        WHEN 'PARTIALLY_REFUNDED' THEN refunded_amount > 0 AND refunded_amount < amount
        ELSE refunded_amount = 0
        END
    ),
    CONSTRAINT payment_refunded CHECK (refunded_amount BETWEEN 0 AND amount),
    CONSTRAINT payment_remainder CHECK (refunded_amount + reserved_amount <= amount),
    CONSTRAINT payment_reserved_state CHECK (
        reserved_amount = 0 OR status IN ('PAID', 'PARTIALLY_REFUNDED')
    )
);
CREATE INDEX payment_due ON payment (expires_at) WHERE status IN ('PENDING', 'PROCESSING');
-- Lists are read newest first, at the same cost with any filter. No column here is NULL: NULLS
-- FIRST gives each index an order of its own, so that a list which asks for that order uses that
-- index, whatever the planner estimates.
CREATE INDEX payment_listed ON payment (merchant_id, created_at, id);
CREATE INDEX payment_listed_kind ON payment
    (merchant_id, currency, status, created_at NULLS FIRST, id);
CREATE INDEX payment_listed_payer ON payment
    (merchant_id, payer_uid, currency, status, created_at, id NULLS FIRST);
CREATE INDEX payment_order_number ON payment (hashtextextended(payment_order_id(metadata), 0))
    WHERE payment_order_id(metadata) IS NOT NULL;
CREATE INDEX payment_ended ON payment (coalesce(paid_at, failed_at, expired_at, cancelled_at))
    WHERE status NOT IN ('PENDING', 'PROCESSING');
CREATE INDEX payment_processing ON payment (created_at) WHERE status = 'PROCESSING';
CREATE INDEX payment_payer_email ON payment (lower(payer_email)) WHERE payer_email IS NOT NULL;
CREATE INDEX payment_details ON payment (coalesce(paid_at, failed_at, expired_at, cancelled_at))
    WHERE status NOT IN ('PENDING', 'PROCESSING')
        AND (payer_email IS NOT NULL OR metadata::text <> '{}');
CREATE INDEX payment_sealed_email ON payment
    (split_part(payer_email, ':', 2), split_part(payer_email, ':', 3))
    WHERE starts_with(payer_email, 'sealed:');
CREATE INDEX payment_sealed_metadata ON payment
    (split_part(metadata #>> '{}', ':', 2), split_part(metadata #>> '{}', ':', 3))
    WHERE json_typeof(metadata) = 'string';
CREATE INDEX payment_payer ON payment (coalesce(paid_at, failed_at, expired_at, cancelled_at))
    WHERE status NOT IN ('PENDING', 'PROCESSING') AND payer_uid <> '(erased)';

-- The transitions of domain/payment.py again, so that no statement can make another one.
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

-- Apart from payment, so that checkout ids stay unique if payment is partitioned by id. There is
-- no foreign key: one statement writes both rows, and neither is ever deleted.
CREATE TABLE checkout (
    id text PRIMARY KEY,
    payment_id uuid NOT NULL
);

CREATE TABLE idempotency (
    merchant_id bigint NOT NULL,
    operation text NOT NULL,
    key uuid NOT NULL,
    request_hash bytea NOT NULL,
    payment_id uuid,
    country text,  -- in the answer of a create, and not stored with the payment
    created_at timestamptz NOT NULL,
    denial json,  -- of a request that was denied, instead of a payment
    refund_id uuid,
    PRIMARY KEY (merchant_id, operation, key),
    CONSTRAINT idempotency_outcome CHECK (num_nonnulls(payment_id, denial) = 1)
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
    outcome text,  -- the provider's word for how it ended
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
    total_minor numeric(78) NOT NULL CONSTRAINT session_total CHECK (total_minor > 0),
    return_url text,
    reference text,  -- the provider's id for it
    next_action json,
    inquire_at timestamptz,  -- when a worker queries the provider next
    inquiries int NOT NULL DEFAULT 0,
    opened_at timestamptz NOT NULL DEFAULT clock(),
    closing_at timestamptz,
    ended_at timestamptz,
    provider_name text NOT NULL,
    silent_since timestamptz,  -- since when the provider has not answered
    -- Declined attempts at a gateway that lets the buyer try again.
    declines int NOT NULL DEFAULT 0,
    -- The token as it was when the session opened: changes by operators are for new sessions.
    token_address bytea,
    token_decimals int,
    token_zero_first boolean,
    number smallint  -- within its payment
        CONSTRAINT session_number CHECK (number BETWEEN 1 AND 20),
    returned_at timestamptz,
    -- When the page showed the form that posts to the gateway, which accepts it once.
    form_shown_at timestamptz,
    CONSTRAINT session_ended CHECK (
        (life = 'ended') = (ended_at IS NOT NULL AND outcome IS NOT NULL)
    )
);
ALTER TABLE payment ADD CONSTRAINT payment_session FOREIGN KEY (session_id) REFERENCES session;
CREATE UNIQUE INDEX session_one_opening ON session (payment_id) WHERE life = 'opening';
CREATE INDEX session_payment ON session (payment_id);
CREATE INDEX session_inquire ON session (inquire_at) WHERE life <> 'ended';
CREATE UNIQUE INDEX session_pay_uuid ON session (reference) WHERE provider = 'gateway_contract';
CREATE INDEX session_chain ON session (chain) WHERE chain IS NOT NULL AND life <> 'ended';
CREATE INDEX session_reference ON session USING hash (reference);

-- The buyer has agreed to the quote and the provider has been asked for it: it never changes.
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
CREATE TRIGGER session_token_frozen
    BEFORE UPDATE OF token_address, token_decimals, token_zero_first ON session
    FOR EACH ROW EXECUTE FUNCTION session_quote_frozen();

-- Money
-- =====

-- Every contract is an account of the provider `gateway_contract`.
CREATE TABLE chain_contract (
    account_id bigint PRIMARY KEY REFERENCES provider_account,
    chain text NOT NULL REFERENCES chain,
    address bytea NOT NULL CONSTRAINT chain_contract_address CHECK (octet_length(address) = 20),
    receiver bytea NOT NULL CONSTRAINT chain_contract_receiver CHECK (octet_length(receiver) = 20),
    deployed_block bigint NOT NULL CONSTRAINT chain_contract_block CHECK (deployed_block >= 0),
    current boolean NOT NULL DEFAULT true,  -- used for new sessions; the others are still watched
    added_at timestamptz NOT NULL DEFAULT clock(),
    CONSTRAINT chain_contract_once UNIQUE (chain, address)
);

CREATE TABLE chain_receipt (
    id uuid PRIMARY KEY,
    chain text NOT NULL REFERENCES chain,
    account_id bigint NOT NULL REFERENCES chain_contract,
    block bigint NOT NULL,
    block_hash bytea NOT NULL,
    tx_hash bytea NOT NULL,
    log_index int NOT NULL,
    uuid bytea NOT NULL,
    payer bytea,
    token bytea NOT NULL,
    receiver bytea NOT NULL,
    amount numeric(78) NOT NULL,
    session_id uuid REFERENCES session,
    disposition text NOT NULL CONSTRAINT chain_receipt_disposition CHECK (disposition IN (
        'credited', 'duplicate', 'underpaid', 'overpaid', 'wrong_token', 'wrong_receiver', 'late',
        'closed_session', 'unknown_uuid'
    )),
    final_at timestamptz NOT NULL,
    CONSTRAINT chain_receipt_once UNIQUE (chain, tx_hash, log_index),
    CONSTRAINT chain_receipt_known CHECK (
        session_id IS NOT NULL OR disposition IN ('unknown_uuid', 'wrong_receiver')
    )
);
CREATE UNIQUE INDEX chain_receipt_one_credit ON chain_receipt (session_id)
    WHERE disposition = 'credited';
CREATE INDEX chain_receipt_session ON chain_receipt (session_id);
CREATE INDEX chain_receipt_payer_address ON chain_receipt (payer);
CREATE INDEX chain_receipt_address ON chain_receipt (final_at) WHERE payer IS NOT NULL;
CREATE INDEX chain_receipt_block ON chain_receipt (account_id, block);

-- Every verified callback once. A callback for an unknown session waits with `applied_at` NULL.
CREATE TABLE callback (
    account_id bigint NOT NULL REFERENCES provider_account,
    callback_id text NOT NULL,
    session_id uuid,
    report json,
    body bytea,
    received_at timestamptz NOT NULL DEFAULT clock(),
    applied_at timestamptz,
    refund_id uuid,
    PRIMARY KEY (account_id, callback_id)
);
CREATE INDEX callback_waiting ON callback (session_id) WHERE applied_at IS NULL;
CREATE INDEX callback_body ON callback (applied_at)
    WHERE applied_at IS NOT NULL AND body IS NOT NULL;
CREATE INDEX callback_session ON callback (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX callback_refund ON callback (refund_id) WHERE refund_id IS NOT NULL;

-- Every reported capture. Refunds are taken from captures, so that no money is refunded twice.
CREATE TABLE capture (
    id uuid PRIMARY KEY,
    account_id bigint NOT NULL REFERENCES provider_account,
    reference text NOT NULL,
    session_id uuid REFERENCES session,
    payment_id uuid REFERENCES payment,
    currency text NOT NULL,
    amount_minor numeric(78) NOT NULL CONSTRAINT capture_amount CHECK (amount_minor >= 0),
    credited boolean NOT NULL,  -- this capture made the payment PAID
    refunded_minor numeric(78) NOT NULL DEFAULT 0
        CONSTRAINT capture_refunded_minor CHECK (refunded_minor >= 0),
    reserved_minor numeric(78) NOT NULL DEFAULT 0
        CONSTRAINT capture_reserved_minor CHECK (reserved_minor >= 0),
    captured_at timestamptz NOT NULL,
    -- Captures of unknown sessions are known by their receipt or callback, and can be refunded
    -- too.
    receipt_id uuid REFERENCES chain_receipt,
    callback_id text,
    -- Held by open and lost disputes. It can exceed what is left, because refunded money can be
    -- disputed too; but nothing more may be reserved for refunds then.
    disputed_minor numeric(78) NOT NULL DEFAULT 0
        CONSTRAINT capture_disputed_minor CHECK (disputed_minor >= 0),
    CONSTRAINT capture_reference UNIQUE (account_id, reference),
    CONSTRAINT capture_callback
        FOREIGN KEY (account_id, callback_id) REFERENCES callback (account_id, callback_id),
    CONSTRAINT capture_known CHECK (num_nonnulls(session_id, receipt_id, callback_id) > 0),
    CONSTRAINT capture_owned CHECK ((session_id IS NULL) = (payment_id IS NULL)),
    CONSTRAINT capture_remainder CHECK (refunded_minor + reserved_minor <= amount_minor)
);
CREATE INDEX capture_payment ON capture (payment_id);
CREATE UNIQUE INDEX capture_one_credited ON capture (payment_id) WHERE credited;
CREATE UNIQUE INDEX capture_receipt ON capture (receipt_id) WHERE receipt_id IS NOT NULL;
CREATE INDEX capture_at ON capture USING brin (captured_at);

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

CREATE TABLE refund (
    id uuid PRIMARY KEY,  -- also the idempotency key at the provider
    merchant_id bigint,
    payment_id uuid REFERENCES payment,
    capture_id uuid NOT NULL REFERENCES capture,
    case_id uuid,  -- NULL: requested by the merchant
    amount numeric(38, 18)  -- in the payment's currency
        CONSTRAINT refund_amount CHECK (amount > 0),
    amount_text text,  -- exactly as sent
    currency text NOT NULL,  -- of the payment; for a case, of the capture
    amount_minor numeric(78) NOT NULL CONSTRAINT refund_amount_minor CHECK (amount_minor > 0),
    reason text CONSTRAINT refund_reason CHECK (length(reason) BETWEEN 1 AND 500),
    destination text,  -- NULL: back to where it came from
    status text NOT NULL DEFAULT 'PENDING'
        CONSTRAINT refund_status CHECK (status IN ('PENDING', 'SUCCEEDED', 'FAILED')),
    failure_reason text
        CONSTRAINT refund_failure_reason CHECK (failure_reason IN ('DECLINED', 'REJECTED')),
    step text NOT NULL
        CONSTRAINT refund_step CHECK (step IN ('approval', 'queued', 'sent', 'ended')),
    reference text,  -- the provider's id for it
    requested_by text NOT NULL,
    approved_by text,
    note text NOT NULL DEFAULT '',  -- by whoever approved or rejected it
    inquiries int NOT NULL DEFAULT 0,
    next_at timestamptz,  -- when a worker continues; NULL: not automatically
    sent_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock(),
    updated_at timestamptz NOT NULL DEFAULT clock(),
    CONSTRAINT refund_ended CHECK ((status = 'PENDING') = (step <> 'ended')),
    CONSTRAINT refund_failed CHECK ((status = 'FAILED') = (failure_reason IS NOT NULL)),
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
-- For comparisons with a provider's list.
CREATE INDEX refund_reference ON refund (reference) WHERE reference IS NOT NULL;
CREATE INDEX refund_done ON refund (updated_at) WHERE status = 'SUCCEEDED';
CREATE INDEX refund_on_chain ON refund (capture_id)
    WHERE step = 'sent' AND destination IS NOT NULL AND next_at IS NOT NULL;
-- The total of a day that needed no second person.
CREATE INDEX refund_unapproved ON refund (merchant_id, created_at)
    WHERE destination IS NOT NULL AND approved_by IS NULL;
CREATE INDEX refund_merchant ON refund (merchant_id, id) WHERE payment_id IS NOT NULL;
CREATE INDEX refund_updated ON refund (merchant_id, updated_at, id) WHERE merchant_id IS NOT NULL;
CREATE INDEX refund_status ON refund (merchant_id, status, updated_at, id)
    WHERE merchant_id IS NOT NULL;

-- A refund never changes, except that reason and destination are erased after it has ended.
CREATE FUNCTION refund_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER refund_frozen
    BEFORE UPDATE OF merchant_id, payment_id, capture_id, case_id, amount, amount_text, currency,
        amount_minor, reason, destination, requested_by, created_at ON refund
    FOR EACH ROW EXECUTE FUNCTION refund_frozen();

-- Money that belongs to no payment, and other findings that need a person.
CREATE TABLE money_case (
    id uuid PRIMARY KEY,
    kind text NOT NULL CONSTRAINT money_case_kind CHECK (kind IN (
        'ORPHAN_CAPTURE', 'LATE_PAYMENT', 'DOUBLE_PAYMENT', 'AMOUNT_MISMATCH', 'TOKEN_MISMATCH',
        'UNKNOWN_REFERENCE', 'REFUND_REVERSED', 'RECONCILIATION', 'UNDECIDED', 'DISPUTE',
        'OUTSIDE_REFUND', 'FRAUD_WARNING'
    )),
    merchant_id bigint REFERENCES merchant,
    payment_id uuid REFERENCES payment,
    session_id uuid REFERENCES session,
    capture_id uuid REFERENCES capture,
    status text NOT NULL DEFAULT 'OPEN'
        CONSTRAINT money_case_status
            CHECK (status IN ('OPEN', 'REFUNDED', 'ACCEPTED', 'DISMISSED')),
    opened_at timestamptz NOT NULL,
    receipt_id uuid REFERENCES chain_receipt,
    closed_at timestamptz,
    closed_by text,
    note text NOT NULL DEFAULT '',
    refund_id uuid REFERENCES refund,
    -- A line of a settlement file, or another name that matches no record.
    subject text CONSTRAINT money_case_subject CHECK (length(subject) BETWEEN 1 AND 300),
    CONSTRAINT money_case_once
        UNIQUE NULLS NOT DISTINCT (session_id, capture_id, receipt_id, refund_id, subject, kind),
    CONSTRAINT money_case_about CHECK (
        num_nonnulls(session_id, receipt_id, refund_id, subject, capture_id) > 0
    ),
    CONSTRAINT money_case_closed CHECK (
        (status = 'OPEN') = (closed_at IS NULL) AND (status = 'OPEN') = (closed_by IS NULL)
    )
);
ALTER TABLE refund ADD CONSTRAINT refund_case_id_fkey FOREIGN KEY (case_id) REFERENCES money_case;
CREATE INDEX money_case_open ON money_case (id) WHERE status = 'OPEN';
CREATE INDEX money_case_merchant ON money_case (merchant_id, id) WHERE merchant_id IS NOT NULL;
CREATE INDEX money_case_payment ON money_case (payment_id) WHERE payment_id IS NOT NULL;

CREATE TABLE dispute (
    id uuid PRIMARY KEY,
    account_id bigint NOT NULL REFERENCES provider_account,
    reference text NOT NULL
        CONSTRAINT dispute_reference CHECK (length(reference) BETWEEN 1 AND 300),
    capture_id uuid NOT NULL REFERENCES capture,
    case_id uuid NOT NULL UNIQUE REFERENCES money_case,
    state text NOT NULL
        CONSTRAINT dispute_state
            CHECK (state IN ('inquiry', 'open', 'under_review', 'won', 'lost', 'closed')),
    funds text NOT NULL
        CONSTRAINT dispute_funds CHECK (funds IN ('untouched', 'withdrawn', 'reinstated')),
    amount_minor numeric(78) NOT NULL CONSTRAINT dispute_amount CHECK (amount_minor >= 0),
    currency text NOT NULL,
    reason text NOT NULL DEFAULT '' CONSTRAINT dispute_reason CHECK (length(reason) <= 300),
    respond_by timestamptz,
    held_minor numeric(78) NOT NULL CONSTRAINT dispute_held CHECK (held_minor >= 0),
    created_at timestamptz NOT NULL DEFAULT clock(),
    updated_at timestamptz NOT NULL DEFAULT clock(),
    CONSTRAINT dispute_once UNIQUE (account_id, reference)
);
CREATE INDEX dispute_capture ON dispute (capture_id);
CREATE INDEX dispute_created ON dispute (created_at);
CREATE INDEX dispute_running ON dispute (id) WHERE state IN ('inquiry', 'open', 'under_review');
CREATE INDEX dispute_reinstated ON dispute (updated_at) WHERE funds = 'reinstated';

-- Denials: one row per rule that matched.
CREATE TABLE fraud_decision (
    id uuid PRIMARY KEY,
    merchant_id bigint NOT NULL,
    payment_id uuid,  -- NULL: a denied create
    rule_id bigint NOT NULL REFERENCES fraud_rule,
    code text NOT NULL,
    level text NOT NULL,
    score int NOT NULL,
    decided_at timestamptz NOT NULL DEFAULT clock()
);
CREATE UNIQUE INDEX fraud_decision_once ON fraud_decision (payment_id, rule_id)
    WHERE payment_id IS NOT NULL;
CREATE INDEX fraud_decision_decided ON fraud_decision (decided_at);

-- Chains
-- ======

CREATE TABLE chain_cursor (
    chain text PRIMARY KEY REFERENCES chain,
    block bigint NOT NULL,  -- read up to and including this block
    hash bytea,  -- NULL: the block has not been read itself
    at timestamptz,  -- of that block
    head bigint,
    head_at timestamptz,
    window_at timestamptz,  -- two endpoints have reported unfinalized payments up to here
    second_look_at timestamptz NOT NULL DEFAULT clock(),
    second_look_block bigint,  -- the progress of an unfinished second look
    halted text,  -- why reading has stopped
    polled_at timestamptz,
    watched_since timestamptz,  -- without interruption
    watched_until timestamptz,  -- if in the past: not watched since then
    auto_refund_day date,  -- UTC; the day of the gas below
    auto_refund_gas_used bigint NOT NULL DEFAULT 0,
    CONSTRAINT chain_cursor_watched CHECK ((watched_since IS NULL) = (watched_until IS NULL))
);

-- Payments in blocks that are not final: shown on pages and waited for, but never credited.
CREATE TABLE chain_sighting (
    chain text NOT NULL REFERENCES chain,
    tx_hash bytea NOT NULL,
    log_index int NOT NULL,
    session_id uuid NOT NULL REFERENCES session,
    exact boolean NOT NULL,
    block bigint NOT NULL,
    seen_at timestamptz NOT NULL,
    gone_at timestamptz,  -- when it was proven to be gone
    PRIMARY KEY (chain, tx_hash, log_index)
);
CREATE INDEX chain_sighting_session ON chain_sighting (session_id);
CREATE INDEX chain_sighting_there ON chain_sighting (chain, block) WHERE gone_at IS NULL;

CREATE TABLE chain_hint (
    session_id uuid NOT NULL REFERENCES session,
    tx_hash bytea NOT NULL CONSTRAINT chain_hint_tx_hash CHECK (octet_length(tx_hash) = 32),
    step text NOT NULL CONSTRAINT chain_hint_step CHECK (step IN ('approve', 'pay')),
    state text NOT NULL DEFAULT 'unknown' CONSTRAINT chain_hint_state CHECK (
        state IN ('unknown', 'pending', 'mined', 'reverted', 'foreign', 'duplicate')
    ),
    reason text NOT NULL DEFAULT '',
    final boolean NOT NULL DEFAULT false,
    posted_at timestamptz NOT NULL DEFAULT clock(),
    looked_at timestamptz,  -- the longest ago is looked up next
    settled_at timestamptz,
    PRIMARY KEY (session_id, tx_hash)
);
CREATE INDEX chain_hint_tx ON chain_hint USING hash (tx_hash);

-- Finalized `Refunded` logs of our contracts, by our signers or by others.
CREATE TABLE chain_refund (
    id uuid PRIMARY KEY,
    chain text NOT NULL REFERENCES chain,
    account_id bigint NOT NULL REFERENCES chain_contract,
    block bigint NOT NULL,
    tx_hash bytea NOT NULL,
    log_index int NOT NULL,
    uuid bytea NOT NULL,
    refund_ref uuid NOT NULL,  -- our refund's id, unless somebody else made it up
    token bytea NOT NULL,
    amount numeric(78) NOT NULL,
    destination bytea,
    sender bytea NOT NULL,
    disposition text  -- NULL: nobody has judged it yet
        CONSTRAINT chain_refund_disposition CHECK (  
            disposition IN ('settles', 'unknown', 'foreign', 'mismatched', 'twice')
        ),
    refund_id uuid REFERENCES refund,  -- the refund that it settles
    final_at timestamptz NOT NULL,
    CONSTRAINT chain_refund_once UNIQUE (chain, tx_hash, log_index),
    CONSTRAINT chain_refund_settled CHECK (
        (refund_id IS NOT NULL) = (disposition IS NOT DISTINCT FROM 'settles')
    )
);
CREATE UNIQUE INDEX chain_refund_settles ON chain_refund (refund_id) WHERE refund_id IS NOT NULL;
CREATE INDEX chain_refund_ref ON chain_refund (refund_ref);
CREATE INDEX chain_refund_new ON chain_refund (chain, block, log_index) WHERE disposition IS NULL;
CREATE INDEX chain_refund_block ON chain_refund (account_id, block);

-- The signer of each refund. It never changes: a contract refunds once per sender, so a second
-- sender would refund twice.
CREATE TABLE chain_refund_try (
    refund_id uuid PRIMARY KEY,
    sender bytea NOT NULL CONSTRAINT chain_refund_try_sender CHECK (octet_length(sender) = 20),
    tx_hash bytea,  -- the last one the signer reported
    asked_at timestamptz NOT NULL DEFAULT clock(),
    reverts int NOT NULL DEFAULT 0  -- after several of them the refund becomes a case
);
CREATE INDEX chain_refund_try_tx ON chain_refund_try USING hash (tx_hash);

-- Events
-- ======

-- The outbox: written by the transaction that changes the status. The body is sent as it is here.
CREATE TABLE event (
    id uuid PRIMARY KEY,  -- also the `webhook-id` header
    payment_id uuid NOT NULL REFERENCES payment,
    merchant_id bigint NOT NULL,
    type text NOT NULL CONSTRAINT event_type CHECK (type IN (
        'payment.completed', 'payment.failed', 'payment.expired', 'payment.cancelled'
    )),
    body text NOT NULL,
    occurred_at timestamptz NOT NULL,
    -- The position in the merchant's feed. Readers assign positions under the lock of
    -- `event_feed`, so that no event appears before one that was already read.
    feed_position bigint CONSTRAINT event_feed_position CHECK (feed_position > 0)
);
-- Each of the four types ends a payment, and a payment ends once.
CREATE UNIQUE INDEX event_one_terminal ON event (payment_id);
CREATE INDEX event_merchant ON event (merchant_id, id);
CREATE INDEX event_unnumbered ON event (merchant_id, id) WHERE feed_position IS NULL;
CREATE UNIQUE INDEX event_feed_order ON event (merchant_id, feed_position)
    WHERE feed_position IS NOT NULL;
CREATE INDEX event_sealed_body ON event (split_part(body, ':', 2))
    WHERE starts_with(body, 'sealed:');

CREATE TABLE event_feed (
    merchant_id bigint PRIMARY KEY REFERENCES merchant,
    first_id uuid NOT NULL,  -- older events get no position: 30 days before the first read
    last_position bigint NOT NULL DEFAULT 0 CONSTRAINT event_feed_last CHECK (last_position >= 0)
);

CREATE TABLE delivery (
    event_id uuid PRIMARY KEY REFERENCES event,
    merchant_id bigint NOT NULL,
    state text NOT NULL
        CONSTRAINT delivery_state CHECK (state IN ('pending', 'delivered', 'dead', 'skipped')),
    attempts int NOT NULL DEFAULT 0,
    next_at timestamptz NOT NULL,  -- during an attempt: the end of its lease
    lease_until timestamptz NOT NULL DEFAULT '-infinity',
    delivered_at timestamptz
) WITH (fillfactor = 70);
CREATE INDEX delivery_due ON delivery (merchant_id, next_at) WHERE state = 'pending';
-- Undelivered events, to count and to resend.
CREATE INDEX delivery_missed ON delivery (merchant_id, event_id)
    WHERE state IN ('dead', 'skipped');
CREATE INDEX delivery_missed_state ON delivery (state, merchant_id, event_id)
    WHERE state IN ('dead', 'skipped');

CREATE TABLE attempt (
    id uuid PRIMARY KEY,
    event_id uuid NOT NULL REFERENCES event,
    number int NOT NULL,
    outcome text NOT NULL,
    status int,
    detail text NOT NULL,
    answer text NOT NULL,
    duration_ms int NOT NULL,
    started_at timestamptz NOT NULL,
    url text  -- where it was sent; the merchant's URL may have changed since
);
CREATE INDEX attempt_event ON attempt (event_id, id);

-- Webhook endpoints to which workers do not deliver for a while. A row is deleted with the first
-- successful delivery, or an hour after `until`.
CREATE TABLE endpoint_outage (
    merchant_id bigint PRIMARY KEY REFERENCES merchant,
    since timestamptz NOT NULL DEFAULT clock(),
    until timestamptz NOT NULL,  -- when the next delivery is tried
    trips int NOT NULL DEFAULT 1 CONSTRAINT endpoint_outage_trips CHECK (trips > 0),
    detail text NOT NULL  -- the outcome of the last attempt
);

-- E-mail to be sent; a row is deleted once it was sent or given up. A receipt is written from its
-- payment when it is sent, so it stores nothing of the buyer; other mail is sealed.
CREATE TABLE mail (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    kind text NOT NULL CONSTRAINT mail_kind CHECK (kind IN ('invitation', 'receipt')),
    payment_id uuid REFERENCES payment,
    sealed bytea,
    attempts int NOT NULL DEFAULT 0 CONSTRAINT mail_attempts CHECK (attempts >= 0),
    created_at timestamptz NOT NULL DEFAULT clock(),
    next_at timestamptz NOT NULL DEFAULT clock(),
    CONSTRAINT mail_content CHECK (
        (kind = 'receipt') = (payment_id IS NOT NULL) AND (kind = 'receipt') = (sealed IS NULL)
    )
);
CREATE INDEX mail_due ON mail (next_at);
CREATE INDEX mail_created ON mail (created_at);
CREATE UNIQUE INDEX mail_receipt_once ON mail (payment_id);

-- Books
-- =====

-- The double-entry ledger. A row moves an amount from one account to another, so all rows sum to
-- zero. It is written in the transaction of the fact and never changed. There are no foreign keys:
-- `payintent ledger check` compares it with its facts.
CREATE TABLE ledger_entry (
    fact_id uuid NOT NULL,
    fact text NOT NULL CONSTRAINT ledger_entry_fact CHECK (fact IN (
        'capture', 'capture_adopted', 'refund_reserved', 'refund_done', 'refund_reversed',
        'dispute_opened', 'dispute_moved', 'dispute_won', 'dispute_lost', 'case_accepted',
        'case_dismissed', 'gateway_payout', 'payout', 'adjustment'
    )),
    leg text NOT NULL,
    merchant_id bigint,
    debit text NOT NULL CONSTRAINT ledger_entry_debit CHECK (split_part(debit, ':', 1) IN (
        'gateway_clearing', 'chain_receiver', 'chain_gas', 'merchant_payable', 'fee_income',
        'tax_payable', 'suspense', 'refund_reserve', 'dispute_reserve', 'bank'
    )),
    credit text NOT NULL CONSTRAINT ledger_entry_credit CHECK (split_part(credit, ':', 1) IN (
        'gateway_clearing', 'chain_receiver', 'chain_gas', 'merchant_payable', 'fee_income',
        'tax_payable', 'suspense', 'refund_reserve', 'dispute_reserve', 'bank'
    )),
    amount numeric(78) NOT NULL CONSTRAINT ledger_entry_amount CHECK (amount > 0),
    currency text NOT NULL,
    chain text,
    created_at timestamptz NOT NULL DEFAULT clock(),
    -- In the order of insertion, which is not that of commits.
    entry_number bigint GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (fact_id, fact, leg),
    CONSTRAINT ledger_entry_accounts CHECK (debit <> credit)
);
CREATE INDEX ledger_entry_of_merchant ON ledger_entry (merchant_id, entry_number);

CREATE FUNCTION ledger_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the ledger is only ever added to'
        USING ERRCODE = 'check_violation', CONSTRAINT = 'ledger_append_only';
END $$;
CREATE TRIGGER ledger_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_entry
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_append_only();

CREATE TABLE payout (
    id uuid PRIMARY KEY,
    merchant_id bigint NOT NULL REFERENCES merchant,
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
-- A bank reference is recorded once, unless the payout was reversed.
CREATE UNIQUE INDEX payout_once ON payout (merchant_id, reference) WHERE reversed_at IS NULL;
CREATE INDEX payout_of_merchant ON payout (merchant_id, id);

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

-- What a merchant is owed, in smallest units; below 0 the merchant owes it.
CREATE FUNCTION merchant_payable(of_merchant bigint, of_currency text, of_chain text)
RETURNS numeric LANGUAGE sql STABLE AS $$
    SELECT coalesce(sum(CASE e.credit WHEN 'merchant_payable:' || of_merchant THEN e.amount
        ELSE -e.amount END), 0)
    FROM ledger_entry e
    WHERE e.merchant_id = of_merchant AND e.currency = of_currency
        AND e.chain IS NOT DISTINCT FROM of_chain
        AND 'merchant_payable:' || of_merchant IN (e.debit, e.credit)
$$;

-- Payouts of a merchant are serialized, so that each sees the entries of those before it.
CREATE FUNCTION payout_within_payable() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(7002, hashint8(NEW.merchant_id));
    IF NEW.amount_minor > merchant_payable(NEW.merchant_id, NEW.currency, NEW.chain) THEN
        RAISE EXCEPTION 'a payout is above what its merchant is owed'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'payout_within_payable';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER payout_within_payable BEFORE INSERT ON payout
    FOR EACH ROW EXECUTE FUNCTION payout_within_payable();

-- Payouts of gateways to the bank, and the fees they kept. If the amount is negative, the gateway
-- collected it from the bank account.
CREATE TABLE gateway_payout (
    id uuid PRIMARY KEY,
    account_id bigint NOT NULL REFERENCES provider_account,
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
-- A gateway's reference is recorded once, unless the payout was reversed.
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

CREATE TABLE statement (
    id uuid PRIMARY KEY,
    merchant_id bigint NOT NULL REFERENCES merchant,
    currency text NOT NULL,
    chain text NOT NULL,  -- '' unless the currency is a token
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
    -- Its ledger entries: numbers `first_number` to `last_number` created before `until_at`,
    -- without those of an earlier closing: up to `closed_number` and created before `closed_at`.
    first_number bigint NOT NULL,
    last_number bigint NOT NULL,
    until_at timestamptz NOT NULL,
    closed_number bigint NOT NULL,
    closed_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock(),
    CONSTRAINT statement_order UNIQUE (merchant_id, currency, chain, number),
    CONSTRAINT statement_sum CHECK (closing_minor = opening_minor + payments_minor + fees_minor
        + tax_minor + refunds_minor + disputes_minor + adjustments_minor + payouts_minor)
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

-- Up to where each merchant's entries are in statements; the columns mean the same as there.
CREATE TABLE statement_close (
    merchant_id bigint PRIMARY KEY REFERENCES merchant,
    day date NOT NULL,
    closed_at timestamptz NOT NULL,
    closed_number bigint NOT NULL,
    next_number bigint NOT NULL
);

-- A worker that read the row earlier must not move it back, or entries would be in two statements.
CREATE FUNCTION statement_close_forward() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' OR NEW.day < OLD.day OR NEW.closed_at < OLD.closed_at
        OR NEW.closed_number < OLD.closed_number OR NEW.next_number < OLD.next_number THEN
        RAISE EXCEPTION 'days of a merchant that are closed stay closed'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'statement_close_forward';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER statement_close_forward BEFORE UPDATE OR DELETE ON statement_close
    FOR EACH ROW EXECUTE FUNCTION statement_close_forward();

-- Reconciliation
-- ==============

-- Comparisons of a gateway's or a chain's list with our records.
CREATE TABLE reconciliation_run (
    id uuid PRIMARY KEY,
    account_id bigint NOT NULL REFERENCES provider_account,
    source text NOT NULL
        CONSTRAINT reconciliation_run_source CHECK (source IN ('folder', 's3', 'chain', 'api')),
    name text NOT NULL,  -- of the file
    sha256 text NOT NULL,
    status text NOT NULL
        CONSTRAINT reconciliation_run_status
            CHECK (status IN ('running', 'matched', 'differs', 'failed')),
    attempts int NOT NULL DEFAULT 1,
    lease_until timestamptz NOT NULL,  -- an abandoned run starts again after this
    problem text NOT NULL DEFAULT '',  -- why it failed
    since timestamptz,  -- records from then on are expected in the list
    until timestamptz,
    opened int NOT NULL DEFAULT 0,  -- new cases
    created_at timestamptz NOT NULL DEFAULT clock(),
    ended_at timestamptz,
    CONSTRAINT reconciliation_run_once UNIQUE (account_id, sha256),
    CONSTRAINT reconciliation_run_ended CHECK ((status = 'running') = (ended_at IS NULL)),
    CONSTRAINT reconciliation_run_problem CHECK ((status = 'failed') = (problem <> ''))
);
CREATE INDEX reconciliation_run_recent ON reconciliation_run (ended_at) WHERE status <> 'matched';

-- The count and the total of each side, in units of the currency.
CREATE TABLE reconciliation_sum (
    run_id uuid NOT NULL REFERENCES reconciliation_run,
    type text NOT NULL
        CONSTRAINT reconciliation_sum_type
            CHECK (type IN ('payment', 'refund', 'dispute', 'dispute_reversal', 'payout')),
    currency text NOT NULL,
    lines bigint NOT NULL,
    records bigint NOT NULL,
    gateway numeric NOT NULL,
    service numeric NOT NULL,
    ledger numeric NOT NULL,
    merchants numeric NOT NULL,
    PRIMARY KEY (run_id, type, currency)
);

-- Files that were read, by the version their folder or bucket lists, so that none is read twice.
CREATE TABLE reconciliation_file (
    source text NOT NULL,
    account_id bigint NOT NULL REFERENCES provider_account,
    name text NOT NULL,
    version text NOT NULL,  -- of its content: its size and time of change, or its ETag
    run_id uuid NOT NULL REFERENCES reconciliation_run,
    PRIMARY KEY (source, account_id, name, version)
);
CREATE INDEX reconciliation_file_run ON reconciliation_file (run_id);

-- The blocks of a run and its progress: an abandoned run continues at `next_block`.
CREATE TABLE reconciliation_blocks (
    run_id uuid PRIMARY KEY REFERENCES reconciliation_run,
    account_id bigint NOT NULL REFERENCES chain_contract,
    first_block bigint NOT NULL,
    last_block bigint NOT NULL,
    next_block bigint NOT NULL,
    differences int NOT NULL DEFAULT 0,
    opened int NOT NULL DEFAULT 0,
    CONSTRAINT reconciliation_blocks_order
        CHECK (first_block <= next_block AND next_block <= last_block + 1)
);
CREATE INDEX reconciliation_blocks_newest ON reconciliation_blocks (account_id, last_block);

-- A receiver's balance at the last block and in the ledger, in units of the token.
CREATE TABLE reconciliation_balance (
    run_id uuid NOT NULL REFERENCES reconciliation_run,
    currency text NOT NULL,
    block bigint NOT NULL,
    receiver numeric,  -- NULL: no endpoint reported it
    refunders numeric,
    ledger numeric NOT NULL,
    expected numeric,  -- NULL: manual withdrawals are not recorded
    PRIMARY KEY (run_id, currency)
);

-- Gateways
-- ========

-- Gateways whose circuit is open; the row is deleted when they answer again.
CREATE TABLE gateway_outage (
    account_id bigint NOT NULL REFERENCES provider_account,
    channel text NOT NULL
        CONSTRAINT gateway_outage_channel CHECK (channel IN ('sessions', 'refunds')),
    trips int NOT NULL DEFAULT 1,
    since timestamptz NOT NULL DEFAULT clock(),
    until timestamptz NOT NULL,  -- when a single call may probe
    probed_at timestamptz,  -- when a process began the probe
    detail text NOT NULL DEFAULT '',  -- the last error
    PRIMARY KEY (account_id, channel)
);

-- A log of calls to gateways, without bodies and secrets, for payment timelines and account
-- health. It is written apart from the calls' results and deleted after some weeks.
CREATE TABLE gateway_call (
    at timestamptz NOT NULL,
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    account_id bigint NOT NULL,
    request text NOT NULL CONSTRAINT gateway_call_request CHECK (
        request IN ('create_session', 'inquire', 'close_session', 'refund', 'inquire_refund')),
    payment_id uuid,
    session_id uuid,
    refund_id uuid,
    outcome text NOT NULL
        CONSTRAINT gateway_call_outcome
            CHECK (outcome IN ('answered', 'rejected', 'throttled', 'unknown', 'not_contacted')),
    detail text NOT NULL CONSTRAINT gateway_call_detail CHECK (length(detail) <= 300),
    duration_ms int NOT NULL,
    PRIMARY KEY (at, id),
    CONSTRAINT gateway_call_subject CHECK (num_nonnulls(session_id, refund_id) = 1)
);
CREATE INDEX gateway_call_payment ON gateway_call (payment_id, at) WHERE payment_id IS NOT NULL;
CREATE INDEX gateway_call_failed ON gateway_call (account_id, at DESC) WHERE outcome <> 'answered';

-- Rate limits of the gateway calls that buyers can cause. Unlogged: losing it in a crash is
-- harmless.
CREATE UNLOGGED TABLE buyer_call_state (
    account_id bigint PRIMARY KEY,
    full_at numeric NOT NULL
) WITH (fillfactor = 50);

-- People
-- ======

CREATE TABLE operator_token (
    public_id text PRIMARY KEY CONSTRAINT operator_token_public_id CHECK (length(public_id) = 8),
    name text NOT NULL CONSTRAINT operator_token_name CHECK (length(name) BETWEEN 1 AND 100)
        CONSTRAINT operator_token_no_identity CHECK (NOT starts_with(lower(name), 'oidc:')),
    digest bytea NOT NULL CONSTRAINT operator_token_digest CHECK (octet_length(digest) = 32),
    created_at timestamptz NOT NULL DEFAULT clock(),
    revoked_at timestamptz,
    role text NOT NULL DEFAULT 'viewer'
        CONSTRAINT operator_token_role CHECK (role IN ('viewer', 'support', 'finance', 'admin')),
    expires_at timestamptz NOT NULL DEFAULT clock() + interval '90 days',
    last_used_at timestamptz
);
CREATE UNIQUE INDEX operator_token_name_once ON operator_token (lower(name));

-- Operators who sign in to the console by OpenID Connect. Issuer and subject identify them; the
-- name is for people and the audit log, and never changes. The role is the provider's at the last
-- sign-in and is valid until `expires_at`.
CREATE TABLE operator_identity (
    id uuid PRIMARY KEY,
    issuer text NOT NULL
        CONSTRAINT operator_identity_issuer CHECK (length(issuer) BETWEEN 1 AND 500),
    subject text NOT NULL
        CONSTRAINT operator_identity_subject CHECK (length(subject) BETWEEN 1 AND 255),
    name text NOT NULL
        CONSTRAINT operator_identity_name
            CHECK (starts_with(name, 'oidc:') AND length(name) BETWEEN 6 AND 200),
    role text NOT NULL
        CONSTRAINT operator_identity_role
            CHECK (role IN ('viewer', 'support', 'finance', 'admin')),
    created_at timestamptz NOT NULL DEFAULT clock(),
    signed_in_at timestamptz NOT NULL DEFAULT clock(),
    expires_at timestamptz NOT NULL,
    blocked_at timestamptz
);
CREATE UNIQUE INDEX operator_identity_person ON operator_identity (issuer, subject);
CREATE UNIQUE INDEX operator_identity_name_once ON operator_identity (lower(name));

-- Sessions of the operator console. A session is valid only while its token or identity is, so
-- name and role are read from there. There is no foreign key to the token: a replaced token gets
-- another public id, which ends its sessions.
CREATE TABLE console_session (
    id uuid PRIMARY KEY,
    token_public_id text,
    digest bytea NOT NULL,  -- of the cookie's secret
    digest_before bytea,  -- of the previous secret, for requests in flight
    address text,  -- the client address when it was opened
    browser text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock(),
    rotated_at timestamptz NOT NULL DEFAULT clock(),
    last_used_at timestamptz NOT NULL DEFAULT clock(),
    expires_at timestamptz NOT NULL,
    revoked_at timestamptz,
    identity_id uuid REFERENCES operator_identity,
    CONSTRAINT console_session_holder CHECK (num_nonnulls(token_public_id, identity_id) = 1),
    CONSTRAINT console_session_short CHECK (expires_at <= created_at + interval '12 hours')
);
CREATE INDEX console_session_of_token ON console_session (token_public_id, id);
CREATE INDEX console_session_expiry ON console_session (expires_at);
CREATE INDEX console_session_of_identity ON console_session (identity_id, id)
    WHERE identity_id IS NOT NULL;

-- A sign-in by OpenID Connect can be completed once.
CREATE TABLE completed_sign_in (
    digest bytea PRIMARY KEY CONSTRAINT completed_sign_in_digest CHECK (length(digest) = 32),
    expires_at timestamptz NOT NULL
);
CREATE INDEX completed_sign_in_expiry ON completed_sign_in (expires_at);

-- Operations that need a second approver.
CREATE TABLE proposal (
    id uuid PRIMARY KEY,
    action text NOT NULL,
    merchant_id bigint,
    sealed bytea,  -- its arguments, until it is decided or expires
    changes text[] NOT NULL CONSTRAINT proposal_changes CHECK (cardinality(changes) > 0),
    proposed_by text NOT NULL CONSTRAINT proposal_proposed_by CHECK (proposed_by <> ''),
    why text NOT NULL,
    proposed_at timestamptz NOT NULL DEFAULT clock(),
    expires_at timestamptz NOT NULL DEFAULT clock() + interval '24 hours',
    status text NOT NULL DEFAULT 'WAITING'
        CONSTRAINT proposal_status CHECK (status IN ('WAITING', 'APPROVED', 'REJECTED')),
    decided_by text,
    decided_at timestamptz,
    note text NOT NULL DEFAULT '',
    CONSTRAINT proposal_decided CHECK (
        (status = 'WAITING') = (decided_by IS NULL)
        AND (status = 'WAITING') = (decided_at IS NULL)
        AND (status = 'WAITING' OR sealed IS NULL)
    ),
    CONSTRAINT proposal_two_people CHECK (status <> 'APPROVED' OR decided_by <> proposed_by)
);
CREATE INDEX proposal_sealed ON proposal (id) WHERE sealed IS NOT NULL;

-- Who changed what, and why; written in the transaction of the change.
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

-- The people of a merchant, who sign in to the merchant portal by a passkey or a link.
CREATE TABLE member (
    id uuid PRIMARY KEY,
    merchant_id bigint NOT NULL REFERENCES merchant,
    email text NOT NULL CONSTRAINT member_email CHECK (length(email) BETWEEN 3 AND 150),
    role text NOT NULL CONSTRAINT member_role CHECK (role IN ('developer', 'finance')),
    invited_by text NOT NULL CONSTRAINT member_invited_by CHECK (invited_by <> ''),
    created_at timestamptz NOT NULL DEFAULT clock(),
    last_signed_in_at timestamptz
);
CREATE UNIQUE INDEX member_email_once ON member (merchant_id, lower(email));

-- A link signs its member in once. One at a time: another one replaces it.
CREATE TABLE member_link (
    member_id uuid PRIMARY KEY REFERENCES member ON DELETE CASCADE,
    digest bytea NOT NULL UNIQUE CONSTRAINT member_link_digest CHECK (length(digest) = 32),
    expires_at timestamptz NOT NULL
);

CREATE TABLE member_passkey (
    id uuid PRIMARY KEY,
    member_id uuid NOT NULL REFERENCES member ON DELETE CASCADE,
    credential_id bytea NOT NULL UNIQUE
        CONSTRAINT member_passkey_credential CHECK (length(credential_id) BETWEEN 1 AND 1023),
    public_key bytea NOT NULL  -- in COSE form
        CONSTRAINT member_passkey_public_key CHECK (length(public_key) BETWEEN 1 AND 4096),
    sign_count bigint NOT NULL CONSTRAINT member_passkey_sign_count CHECK (sign_count >= 0),
    -- When its last challenge was made: only a later one is accepted, so each is used once.
    challenged_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock(),
    last_used_at timestamptz
);
CREATE INDEX member_passkey_member ON member_passkey (member_id, id);

CREATE TABLE member_session (
    id uuid PRIMARY KEY,
    member_id uuid NOT NULL REFERENCES member ON DELETE CASCADE,
    digest bytea NOT NULL UNIQUE CONSTRAINT member_session_digest CHECK (length(digest) = 32),
    previous_digest bytea UNIQUE,  -- before the last rotation; requests under way may carry it
    rotated_at timestamptz NOT NULL DEFAULT clock(),
    expires_at timestamptz NOT NULL
);
CREATE INDEX member_session_member ON member_session (member_id, expires_at);

-- Traffic
-- =======

-- Where each merchant's bucket stands (GCRA): when it will be full again, in seconds of the epoch.
-- Not logged: after a crash every bucket is full, which is what it would soon be anyway.
CREATE UNLOGGED TABLE rate_state (
    merchant_id bigint NOT NULL,
    class text NOT NULL,
    full_at numeric NOT NULL,
    granted int NOT NULL,  -- by the last statement, for its RETURNING
    PRIMARY KEY (merchant_id, class)
) WITH (fillfactor = 50);

-- Selections by address, kept only while a rule counts them; the address as a keyed digest.
CREATE TABLE buyer_attempt (
    address_digest bytea NOT NULL,
    merchant_id bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT clock()
);
CREATE INDEX buyer_attempt_address ON buyer_attempt (address_digest, at);
CREATE INDEX buyer_attempt_at ON buyer_attempt (at);

-- The last calls of merchants' keys, for their developers: no bodies, no queries, no secrets.
CREATE TABLE api_call (
    at timestamptz NOT NULL,
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    merchant_id bigint NOT NULL,
    method text NOT NULL,
    route text NOT NULL,
    status int NOT NULL,
    error_code text,
    request_id text NOT NULL,
    duration_us int NOT NULL,
    PRIMARY KEY (at, id)
);
CREATE INDEX api_call_merchant ON api_call (merchant_id, at, id);
CREATE INDEX api_call_failed ON api_call (merchant_id, at, id) WHERE status >= 400;

-- What happened in each hour, counted by a worker, so that no page counts payments: each kind of
-- thing by currency, and the ends of payments by method and by country too ('': none was
-- selected).
CREATE TABLE hourly_figure (
    hour timestamptz NOT NULL,
    subject text NOT NULL
        CONSTRAINT hourly_figure_subject CHECK (subject IN ('currency', 'method', 'country')),
    kind text NOT NULL CONSTRAINT hourly_figure_kind CHECK (kind IN (
        'PAID', 'FAILED', 'EXPIRED', 'CANCELLED', 'REFUNDED', 'DISPUTED', 'DELIVERED', 'UNDELIVERED'
    )),
    value text NOT NULL,  -- of the subject
    count bigint NOT NULL,
    amount numeric NOT NULL,  -- by currency, in its units; of disputes in its smallest ones
    PRIMARY KEY (hour, subject, kind, value)
);

-- Hours before `closed_until` were counted again after all their transactions had ended.
CREATE TABLE figure_mark (
    only_row boolean PRIMARY KEY DEFAULT true CONSTRAINT figure_mark_only_row CHECK (only_row),
    counted_until timestamptz NOT NULL,
    closed_until timestamptz NOT NULL
);
-- Counting begins with the current hour.
INSERT INTO figure_mark (counted_until, closed_until)
SELECT hour, hour
FROM (SELECT date_bin('1 hour', clock(), '2000-01-01 00:00:00+00') AS hour) begun;

-- Test mode
-- =========

-- How far a test merchant has advanced its clock. The foreign key excludes live merchants.
CREATE TABLE test_clock (
    merchant_id bigint PRIMARY KEY,
    livemode boolean NOT NULL DEFAULT false CONSTRAINT test_clock_livemode CHECK (NOT livemode),
    advanced_s bigint NOT NULL CONSTRAINT test_clock_advanced CHECK (advanced_s >= 0),
    CONSTRAINT test_clock_mode
        FOREIGN KEY (merchant_id, livemode) REFERENCES merchant (id, livemode)
);

-- Sessions and refunds of the built-in test gateway.
CREATE TABLE test_session (
    session_id uuid PRIMARY KEY,
    account_id bigint NOT NULL,
    livemode boolean NOT NULL DEFAULT false CONSTRAINT test_session_livemode CHECK (NOT livemode),
    amount_minor bigint NOT NULL CONSTRAINT test_session_amount CHECK (amount_minor > 0),
    currency text NOT NULL,
    return_url text NOT NULL,
    expires_at timestamptz NOT NULL,
    status text NOT NULL CONSTRAINT test_session_status CHECK (
        status IN ('open', 'challenge', 'deciding', 'paid', 'declined', 'cancelled', 'closed')
    ),
    card text,
    decline_code text,
    decides_at timestamptz,  -- when a delayed payment succeeds
    captured_minor bigint,  -- what was paid
    captured_currency text,
    dispute text,
    created_at timestamptz NOT NULL DEFAULT clock(),
    CONSTRAINT test_session_mode
        FOREIGN KEY (account_id, livemode) REFERENCES provider_account (id, livemode),
    CONSTRAINT test_session_dispute CHECK (
        dispute IS NULL OR (status = 'paid' AND dispute IN ('open', 'won', 'lost'))
    ),
    CONSTRAINT test_session_paid CHECK (
        status <> 'paid' OR num_nulls(captured_minor, captured_currency) = 0
    )
);

CREATE TABLE test_refund (
    refund_id uuid PRIMARY KEY,
    account_id bigint NOT NULL,
    session_id uuid NOT NULL,
    amount_minor bigint NOT NULL CONSTRAINT test_refund_amount CHECK (amount_minor > 0),
    state text NOT NULL
        CONSTRAINT test_refund_state CHECK (state IN ('done', 'pending', 'declined')),
    done_at timestamptz,  -- of a pending refund: when it succeeds
    CONSTRAINT test_refund_session FOREIGN KEY (session_id) REFERENCES test_session (session_id)
);
CREATE INDEX test_refund_by_session ON test_refund (session_id);

-- Configuration version
-- =====================

-- The version of the configuration: merchants, methods, accounts, providers, tokens, tax rates and
-- catalogs. A process keeps what it has cached while the version stays the same. Versions are
-- random, so that none is used twice, not even after a failover or a restore.
CREATE TABLE configuration_version (
    only_row boolean PRIMARY KEY DEFAULT true
        CONSTRAINT configuration_version_only_row CHECK (only_row),
    version uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO configuration_version DEFAULT VALUES;

CREATE FUNCTION change_configuration_version() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE configuration_version
    SET version = gen_random_uuid();
    RETURN NULL;
END $$;

-- Deferred, so that the row is locked only during the commit, after every other lock.
CREATE CONSTRAINT TRIGGER configuration_version AFTER INSERT OR UPDATE OR DELETE ON merchant
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION change_configuration_version();
CREATE CONSTRAINT TRIGGER configuration_version AFTER INSERT OR UPDATE OR DELETE ON payment_method
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION change_configuration_version();
CREATE CONSTRAINT TRIGGER configuration_version AFTER INSERT OR UPDATE OR DELETE ON provider
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION change_configuration_version();
CREATE CONSTRAINT TRIGGER configuration_version AFTER INSERT OR UPDATE OR DELETE ON provider_account
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION change_configuration_version();
CREATE CONSTRAINT TRIGGER configuration_version AFTER INSERT OR UPDATE OR DELETE ON chain_token
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION change_configuration_version();
CREATE CONSTRAINT TRIGGER configuration_version AFTER INSERT OR UPDATE OR DELETE ON tax_rate
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION change_configuration_version();
CREATE CONSTRAINT TRIGGER configuration_version AFTER INSERT OR UPDATE OR DELETE ON catalog_shown
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION change_configuration_version();
