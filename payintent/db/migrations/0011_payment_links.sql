-- Payment links: pages at which buyers create payments without a shop.
CREATE TABLE payment_link (
    id uuid PRIMARY KEY,
    merchant_id bigint NOT NULL REFERENCES merchant,
    token text NOT NULL  -- a capability: everyone who has it can pay
        CONSTRAINT payment_link_token CHECK (token ~ '^lnk_[0-9A-Za-z]{22}$'),
    key uuid NOT NULL,  -- the idempotency key
    request_hash bytea NOT NULL,
    title text NOT NULL CONSTRAINT payment_link_title CHECK (length(title) BETWEEN 1 AND 120),
    description text
        CONSTRAINT payment_link_description CHECK (length(description) BETWEEN 1 AND 500),
    order_id text CONSTRAINT payment_link_order_id CHECK (length(order_id) BETWEEN 1 AND 120),
    currency text NOT NULL,
    amount numeric(38, 18),  -- null: the buyer enters an amount
    amount_text text,
    amount_min numeric(38, 18),
    amount_max numeric(38, 18),
    max_uses int CONSTRAINT payment_link_max_uses CHECK (max_uses BETWEEN 1 AND 10000),
    -- The number of slots that payments can take. A link without a limit never reuses a slot.
    slots int NOT NULL GENERATED ALWAYS AS (coalesce(max_uses, 2147483647)) STORED,
    expires_at timestamptz CONSTRAINT payment_link_expires_at CHECK (isfinite(expires_at)),
    return_url text CONSTRAINT payment_link_return_url CHECK (
        length(return_url) <= 2048
        AND return_url ~ '^[Hh][Tt][Tt][Pp][Ss]?://[!$-.0-;=A-Z\[\]_a-z~]+([/?][!$-;=?-\[\]_a-z~]*)?$'
    ),
    cancel_url text CONSTRAINT payment_link_cancel_url CHECK (
        length(cancel_url) <= 2048
        AND cancel_url ~ '^[Hh][Tt][Tt][Pp][Ss]?://[!$-.0-;=A-Z\[\]_a-z~]+([/?][!$-;=?-\[\]_a-z~]*)?$'
    ),
    created_by text NOT NULL CONSTRAINT payment_link_created_by CHECK (created_by <> ''),
    created_at timestamptz NOT NULL DEFAULT clock(),
    deactivated_at timestamptz,
    deactivated_by text,
    CONSTRAINT payment_link_token_once UNIQUE (token),
    CONSTRAINT payment_link_key_once UNIQUE (merchant_id, key),
    CONSTRAINT payment_link_slots UNIQUE (id, slots),
    CONSTRAINT payment_link_amount CHECK (
        (amount IS NULL) = (amount_text IS NULL)
        AND (amount IS NULL OR amount > 0 AND amount_min IS NULL AND amount_max IS NULL)
    ),
    CONSTRAINT payment_link_range CHECK (
        (amount_min IS NULL OR amount_min > 0) AND (amount_max IS NULL OR amount_max > 0)
        AND (amount_min IS NULL OR amount_max IS NULL OR amount_min <= amount_max)
    ),
    CONSTRAINT payment_link_deactivated CHECK (
        (deactivated_at IS NULL) = (deactivated_by IS NULL) AND deactivated_by <> ''
    )
);
CREATE INDEX payment_link_of_merchant ON payment_link (merchant_id, id);

-- A use of a link. A payment takes a slot, and another payment can replace it once it has ended
-- unpaid. Therefore no more than `slots` payments of a link are open or paid.
CREATE TABLE payment_link_use (
    link_id uuid NOT NULL,
    slot int NOT NULL,
    slots int NOT NULL,
    payment_id uuid NOT NULL REFERENCES payment,
    PRIMARY KEY (link_id, slot),
    CONSTRAINT payment_link_use_payment UNIQUE (payment_id),
    CONSTRAINT payment_link_use_link FOREIGN KEY (link_id, slots) REFERENCES payment_link (id, slots),
    CONSTRAINT payment_link_use_slot CHECK (slot BETWEEN 1 AND slots)
);

-- The terms of a link never change, and a link that was deactivated stays inactive. Only the clock
-- of a test merchant moves a deadline.
CREATE FUNCTION payment_link_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.id, NEW.merchant_id, NEW.token, NEW.key, NEW.request_hash, NEW.title, NEW.description,
            NEW.order_id, NEW.currency, NEW.amount, NEW.amount_text, NEW.amount_min,
            NEW.amount_max, NEW.max_uses, NEW.return_url, NEW.cancel_url, NEW.created_by,
            NEW.created_at)
        IS NOT DISTINCT FROM (OLD.id, OLD.merchant_id, OLD.token, OLD.key, OLD.request_hash,
            OLD.title, OLD.description, OLD.order_id, OLD.currency, OLD.amount, OLD.amount_text,
            OLD.amount_min, OLD.amount_max, OLD.max_uses, OLD.return_url, OLD.cancel_url,
            OLD.created_by, OLD.created_at)
        AND (OLD.deactivated_at IS NULL OR (NEW.deactivated_at, NEW.deactivated_by)
            IS NOT DISTINCT FROM (OLD.deactivated_at, OLD.deactivated_by))
        AND (NEW.expires_at IS NOT DISTINCT FROM OLD.expires_at OR EXISTS (
            SELECT FROM merchant WHERE id = OLD.merchant_id AND NOT livemode)) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'the terms of payment link % cannot change', OLD.id
        USING ERRCODE = 'check_violation', CONSTRAINT = 'payment_link_frozen';
END $$;
CREATE TRIGGER payment_link_frozen BEFORE UPDATE ON payment_link
    FOR EACH ROW EXECUTE FUNCTION payment_link_frozen();

-- A payment matches the terms of its link, which was open when the payment took its slot. A payment
-- that is open or paid keeps its slot.
CREATE FUNCTION payment_link_use_allowed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT
        FROM payment_link l
        JOIN payment p ON p.merchant_id = l.merchant_id AND p.currency = l.currency
        WHERE l.id = NEW.link_id AND p.id = NEW.payment_id
            AND p.amount = coalesce(l.amount, p.amount)
            AND p.amount >= coalesce(l.amount_min, p.amount)
            AND p.amount <= coalesce(l.amount_max, p.amount)
            AND l.deactivated_at IS NULL
            AND coalesce(l.expires_at > clock(), true)
    ) AND (TG_OP = 'INSERT' OR OLD.link_id = NEW.link_id AND OLD.slot = NEW.slot AND EXISTS (
        SELECT
        FROM payment p
        WHERE p.id = OLD.payment_id AND p.status IN ('FAILED', 'EXPIRED', 'CANCELLED')
    )) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'payment % cannot use link %', NEW.payment_id, NEW.link_id
        USING ERRCODE = 'check_violation', CONSTRAINT = 'payment_link_use_allowed';
END $$;
CREATE TRIGGER payment_link_use_allowed BEFORE INSERT OR UPDATE ON payment_link_use
    FOR EACH ROW EXECUTE FUNCTION payment_link_use_allowed();
