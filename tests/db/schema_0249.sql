-- A database of the last version before 1.0 (schema number 249), as pg_dump wrote it, with rows of
-- merchants, payments, money, books and operators. Only the comparisons of rows by two triggers are
-- as the migrations had them, which pg_dump writes in another form. It never changes.
SET check_function_bodies = off;
CREATE FUNCTION public.audit_append_only() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is only ever added to'
        USING ERRCODE = 'check_violation', CONSTRAINT = 'audit_append_only';
END $$;
CREATE FUNCTION public.capture_disputed() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'capture % is disputed: that much cannot be given back', OLD.id
        USING ERRCODE = 'check_violation', CONSTRAINT = 'capture_disputed';
END $$;
CREATE FUNCTION public.cell_step() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF coalesce(current_setting('payintent.copied_by', true), '') NOT IN ('copier', 'take-back')
        AND (OLD.state, NEW.state) NOT IN (('adding', 'open'), ('adding', 'closed'),
            ('open', 'draining'), ('draining', 'open'), ('draining', 'closed')) THEN
        RAISE EXCEPTION 'cell % does not go from % to %', NEW.number, OLD.state, NEW.state
            USING ERRCODE = 'check_violation', CONSTRAINT = 'cell_step';
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION public.cell_transfer_stands() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF TG_OP = 'DELETE' OR NEW.arrived_at IS NULL
        OR (NEW.id, NEW.merchant_id, NEW.currency, NEW.chain, NEW.amount_minor, NEW.from_cell,
            NEW.to_cell, NEW.created_at)
        IS DISTINCT FROM (OLD.id, OLD.merchant_id, OLD.currency, OLD.chain, OLD.amount_minor,
            OLD.from_cell, OLD.to_cell, OLD.created_at) THEN
        RAISE EXCEPTION 'a transfer between cells stands'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'cell_transfer_stands';
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION public.cell_transfer_whole() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
    this_cell smallint := (SELECT cell FROM installation);
    present_cell smallint := coalesce((SELECT cell FROM merchant_cell
        WHERE merchant_id = NEW.merchant_id AND until IS NULL), 0);
BEGIN
    -- Payouts and transfers of a merchant come one after the other.
    PERFORM pg_advisory_xact_lock(7002, hashint8(NEW.merchant_id));
    IF this_cell IS NULL OR this_cell NOT IN (NEW.from_cell, NEW.to_cell) THEN
        RAISE EXCEPTION 'a transfer is between other cells'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'cell_transfer_side';
    END IF;
    IF NEW.arrived_at IS NOT NULL THEN
        RETURN NEW;
    END IF;
    IF this_cell <> NEW.from_cell OR NEW.amount_minor IS NOT NULL OR present_cell = this_cell THEN
        RAISE EXCEPTION 'a cell carries all that it owes a merchant of another cell, and no more'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'cell_transfer_whole';
    END IF;
    NEW.amount_minor := merchant_payable(NEW.merchant_id, NEW.currency, NEW.chain);
    IF NEW.amount_minor = 0 THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION public.change_configuration_version() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
    changed uuid := gen_random_uuid();
BEGIN
    IF current_setting('payintent.copied_by', true) IS DISTINCT FROM 'copier' THEN
        UPDATE configuration_version
        SET version = changed;
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION public.clock() RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    RETURN date_trunc('milliseconds'::text, statement_timestamp());
CREATE FUNCTION public.copied_columns(target regclass, given jsonb) RETURNS TABLE(name text, is_key boolean, is_unique boolean)
    LANGUAGE sql STABLE
    AS $$
    SELECT quote_ident(a.attname), bool_or(coalesce(i.indisprimary, false)),
        bool_or(i.indexrelid IS NOT NULL)
    FROM pg_attribute a
    LEFT JOIN pg_index i
        ON i.indrelid = a.attrelid AND i.indisunique AND i.indpred IS NULL
            AND a.attnum = ANY (i.indkey)
    WHERE a.attrelid = target AND a.attnum > 0 AND NOT a.attisdropped AND given ? a.attname
    GROUP BY a.attname
$$;
CREATE FUNCTION public.copied_only() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
    writer text := coalesce(current_setting('payintent.copied_by', true), '');
    is_copy boolean := EXISTS (SELECT FROM installation WHERE cell <> 0);
BEGIN
    IF is_copy AND writer NOT IN ('copier', 'migration') THEN
        RAISE EXCEPTION 'table % of this cell is a copy: it is written in cell 0', TG_TABLE_NAME
            USING ERRCODE = 'check_violation', CONSTRAINT = 'copied_only';
    END IF;
    IF NOT is_copy AND writer = 'copier' THEN
        RAISE EXCEPTION 'table % of cell 0 is no copy', TG_TABLE_NAME
            USING ERRCODE = 'check_violation', CONSTRAINT = 'copied_only';
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION public.copies_begin() RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF current_setting('payintent.copied_by', true) IS DISTINCT FROM 'take-back' THEN
        PERFORM set_config('payintent.copied_by', 'copier', true);
    END IF;
END $$;
CREATE FUNCTION public.copy_rows(of_table text, given jsonb) RETURNS bigint
    LANGUAGE plpgsql
    AS $_$
DECLARE
    target regclass := quote_ident(of_table)::regclass;
    keys text;
    every text;
    plain text;
    uniques text;
    written bigint;
    rewritten bigint := 0;
BEGIN
    PERFORM copies_begin();
    SELECT string_agg(name, ', '), string_agg(name, ', ') FILTER (WHERE is_key),
        string_agg(name, ', ') FILTER (WHERE NOT is_unique),
        string_agg(name, ', ') FILTER (WHERE is_unique AND NOT is_key)
    INTO every, keys, plain, uniques
    FROM copied_columns(target, given -> 0);
    EXECUTE format(
        'INSERT INTO %1$s AS t (%2$s) OVERRIDING SYSTEM VALUE '
        'SELECT %2$s FROM jsonb_populate_recordset(NULL::%1$s, $1) '
        'ON CONFLICT (%3$s) DO UPDATE SET (%4$s) = ROW(%5$s) '
        'WHERE ROW(%6$s) IS DISTINCT FROM ROW(%5$s)',
        target, every, keys, plain, regexp_replace(plain, '(^|, )', '\1excluded.', 'g'),
        regexp_replace(plain, '(^|, )', '\1t.', 'g')) USING given;
    GET DIAGNOSTICS written = ROW_COUNT;
    -- An UPDATE that names columns of unique keys waits for all that refer to its rows.
    IF uniques IS NOT NULL THEN
        EXECUTE format(
            'UPDATE %1$s AS t SET (%2$s) = ROW(%3$s) '
            'FROM jsonb_populate_recordset(NULL::%1$s, $1) AS g '
            'WHERE ROW(%4$s) = ROW(%5$s) AND ROW(%6$s) IS DISTINCT FROM ROW(%3$s)',
            target, uniques, regexp_replace(uniques, '(^|, )', '\1g.', 'g'),
            regexp_replace(keys, '(^|, )', '\1t.', 'g'),
            regexp_replace(keys, '(^|, )', '\1g.', 'g'),
            regexp_replace(uniques, '(^|, )', '\1t.', 'g')) USING given;
        GET DIAGNOSTICS rewritten = ROW_COUNT;
    END IF;
    RETURN written + rewritten;
END $_$;
CREATE FUNCTION public.drop_copies(of_table text, changed jsonb, kept jsonb) RETURNS bigint
    LANGUAGE plpgsql
    AS $_$
DECLARE
    target regclass := quote_ident(of_table)::regclass;
    gone text;
    is_needed boolean;
    dropped bigint := 0;
BEGIN
    PERFORM copies_begin();
    SELECT string_agg(format('g.%1$I = t.%1$I', a.attname), ' AND ')
    INTO gone
    FROM pg_index i
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
    WHERE i.indrelid = target AND i.indisprimary;
    gone := format(
        'FROM %1$s AS t WHERE NOT EXISTS ('
        'SELECT FROM jsonb_populate_recordset(NULL::%1$s, $2) AS g WHERE %2$s)'
        || CASE WHEN changed IS NULL THEN '' ELSE ' AND EXISTS ('
        'SELECT FROM jsonb_populate_recordset(NULL::%1$s, $1) AS g WHERE %2$s)' END,
        target, gone);
    EXECUTE 'SELECT EXISTS (SELECT ' || gone || ')' INTO is_needed USING changed, kept;
    IF is_needed THEN
        EXECUTE 'DELETE ' || gone USING changed, kept;
        GET DIAGNOSTICS dropped = ROW_COUNT;
    END IF;
    RETURN dropped;
END $_$;
CREATE FUNCTION public.gateway_payout_stands() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION public.ledger_append_only() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'the ledger is only ever added to'
        USING ERRCODE = 'check_violation', CONSTRAINT = 'ledger_append_only';
END $$;
CREATE FUNCTION public.market_changed() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF coalesce(current_setting('payintent.copied_by', true), '') NOT IN ('copier', 'take-back') THEN
        NEW.market_changed_at = clock();
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION public.merchant_payable(of_merchant bigint, of_currency text, of_chain text) RETURNS numeric
    LANGUAGE sql STABLE
    AS $$
    SELECT coalesce(sum(CASE e.credit WHEN 'merchant_payable:' || of_merchant THEN e.amount
        ELSE -e.amount END), 0)
    FROM ledger_entry e
    WHERE e.merchant_id = of_merchant AND e.currency = of_currency
        AND e.chain IS NOT DISTINCT FROM of_chain
        AND 'merchant_payable:' || of_merchant IN (e.debit, e.credit)
$$;
CREATE FUNCTION public.merchant_place_lock(of_merchant bigint, of_cell integer) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    RETURN hashtextextended(((('merchant place '::text || of_cell) || ' '::text) || of_merchant), (0)::bigint);
CREATE FUNCTION public.note_change() RETURNS trigger
    LANGUAGE plpgsql
    SET "TimeZone" TO 'UTC'
    AS $$
DECLARE
    writer text := coalesce(current_setting('payintent.copied_by', true), '');
    noted bigint := nullif(current_setting('payintent.change', true), '');
    changed uuid := gen_random_uuid();
    moment timestamptz := CASE WHEN writer <> 'migration' THEN clock() END;
BEGIN
    IF writer = 'copier' OR EXISTS (SELECT FROM installation WHERE cell <> 0) THEN
        RETURN NULL;
    END IF;
    IF noted IS NULL THEN
        UPDATE configuration_version
        SET number = number + 1, token = changed, changed_at = coalesce(moment, changed_at)
        RETURNING number INTO noted;
        PERFORM set_config('payintent.change', noted::text, true);
        DELETE FROM configuration_change
        WHERE number <= noted - 10000;
    END IF;
    -- After the number: who adds the first cell has one too, so that it is seen here or comes later.
    IF EXISTS (SELECT FROM cell WHERE number <> 0) THEN
        INSERT INTO configuration_change (number, table_name, key, token)
        SELECT noted, TG_TABLE_NAME, jsonb_object_agg(name, changed_row -> name), v.token
        FROM configuration_version v,
            unnest(ARRAY[to_jsonb(OLD), to_jsonb(NEW)]) WITH ORDINALITY AS r (changed_row, side),
            unnest(TG_ARGV) AS name
        WHERE changed_row IS NOT NULL
        GROUP BY side, v.token
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION public.payment_arrow() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION public.payment_order_id(metadata json) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
BEGIN
    RETURN metadata ->> 'order_id';
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END $$;
CREATE FUNCTION public.payout_stands() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION public.payout_within_payable() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    -- Payouts of a merchant come one after the other: each sees the entries of those before.
    PERFORM pg_advisory_xact_lock(7002, hashint8(NEW.merchant_id));
    IF coalesce((SELECT cell FROM merchant_cell WHERE merchant_id = NEW.merchant_id
            AND until IS NULL), 0) <> (SELECT cell FROM installation) THEN
        RAISE EXCEPTION 'a payout is made in the cell that its merchant is in'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'payout_in_present_cell';
    END IF;
    IF NEW.amount_minor > merchant_payable(NEW.merchant_id, NEW.currency, NEW.chain) THEN
        RAISE EXCEPTION 'a payout is above what its merchant is owed'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'payout_within_payable';
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION public.refund_frozen() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION public.session_quote_frozen() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'the quote of session % is frozen', OLD.id
        USING ERRCODE = 'check_violation', CONSTRAINT = 'session_quote_frozen';
END $$;
CREATE FUNCTION public.statement_close_forward() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF TG_OP = 'DELETE' OR NEW.day < OLD.day OR NEW.closed_at < OLD.closed_at
        OR NEW.closed_number < OLD.closed_number OR NEW.next_number < OLD.next_number THEN
        RAISE EXCEPTION 'days of a merchant that are closed stay closed'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'statement_close_forward';
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION public.statement_follows() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION public.statement_frozen() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'a statement is never changed'
        USING ERRCODE = 'check_violation', CONSTRAINT = 'statement_frozen';
END $$;
CREATE FUNCTION public.takes_creates(of_merchant bigint, of_cell integer, place_since timestamp with time zone) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock_shared(merchant_place_lock(of_merchant, of_cell)) THEN
        RETURN false;  -- the move waits for the creates of before
    END IF;
    IF place_since IS NULL THEN
        RETURN of_cell = 0 AND NOT EXISTS (
            SELECT FROM merchant_cell WHERE merchant_id = of_merchant);
    END IF;
    RETURN EXISTS (
        SELECT
        FROM merchant_cell
        WHERE merchant_id = of_merchant AND cell = of_cell AND since = place_since
            AND until IS NULL AND opened_at IS NOT NULL);
END $$;
CREATE TABLE public.api_call (
    at timestamp with time zone NOT NULL,
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    merchant_id bigint NOT NULL,
    method text NOT NULL,
    route text NOT NULL,
    status integer NOT NULL,
    error_code text,
    request_id text NOT NULL,
    duration_us integer NOT NULL
);
CREATE TABLE public.api_key (
    public_id text NOT NULL,
    merchant_id bigint NOT NULL,
    name text NOT NULL,
    digest bytea NOT NULL,
    created_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    revoked_at timestamp with time zone,
    last_used_at timestamp with time zone,
    livemode boolean DEFAULT true NOT NULL,
    CONSTRAINT api_key_digest CHECK ((octet_length(digest) = 32)),
    CONSTRAINT api_key_public_id CHECK ((length(public_id) = 8))
);
CREATE TABLE public.attempt (
    id uuid NOT NULL,
    event_id uuid NOT NULL,
    number integer NOT NULL,
    outcome text NOT NULL,
    status integer,
    detail text NOT NULL,
    answer text NOT NULL,
    duration_ms integer NOT NULL,
    started_at timestamp with time zone NOT NULL,
    url text
);
CREATE TABLE public.audit (
    id uuid NOT NULL,
    at timestamp with time zone DEFAULT public.clock() NOT NULL,
    who text NOT NULL,
    why text NOT NULL,
    action text NOT NULL,
    merchant_id bigint,
    details json NOT NULL,
    CONSTRAINT audit_who CHECK ((who <> ''::text))
);
CREATE TABLE public.buyer_attempt (
    address_digest bytea NOT NULL,
    merchant_id bigint NOT NULL,
    at timestamp with time zone DEFAULT public.clock() NOT NULL
);
CREATE UNLOGGED TABLE public.buyer_call_state (
    account_id bigint NOT NULL,
    full_at numeric NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE public.callback (
    account_id bigint NOT NULL,
    callback_id text NOT NULL,
    session_id uuid,
    report json,
    body bytea,
    received_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    applied_at timestamp with time zone,
    refund_id uuid
);
CREATE TABLE public.callback_secret (
    id uuid NOT NULL,
    merchant_id bigint NOT NULL,
    sealed bytea NOT NULL,
    created_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    expires_at timestamp with time zone
);
CREATE TABLE public.capture (
    id uuid NOT NULL,
    account_id bigint NOT NULL,
    reference text NOT NULL,
    session_id uuid,
    payment_id uuid,
    currency text NOT NULL,
    amount_minor numeric(78,0) NOT NULL,
    credited boolean NOT NULL,
    refunded_minor numeric(78,0) DEFAULT 0 NOT NULL,
    reserved_minor numeric(78,0) DEFAULT 0 NOT NULL,
    captured_at timestamp with time zone NOT NULL,
    receipt_id uuid,
    callback_id text,
    disputed_minor numeric(78,0) DEFAULT 0 NOT NULL,
    CONSTRAINT capture_amount CHECK ((amount_minor >= (0)::numeric)),
    CONSTRAINT capture_disputed_minor CHECK ((disputed_minor >= (0)::numeric)),
    CONSTRAINT capture_known CHECK ((num_nonnulls(session_id, receipt_id, callback_id) > 0)),
    CONSTRAINT capture_owned CHECK (((session_id IS NULL) = (payment_id IS NULL))),
    CONSTRAINT capture_refunded_minor CHECK ((refunded_minor >= (0)::numeric)),
    CONSTRAINT capture_remainder CHECK (((refunded_minor + reserved_minor) <= amount_minor)),
    CONSTRAINT capture_reserved_minor CHECK ((reserved_minor >= (0)::numeric))
);
CREATE TABLE public.catalog_shown (
    merchant_id bigint NOT NULL,
    viewer text NOT NULL,
    content_hash bytea NOT NULL,
    since timestamp with time zone NOT NULL,
    CONSTRAINT catalog_shown_viewer CHECK ((viewer ~ '^([A-Z]{2})?$'::text))
);
CREATE TABLE public.cell (
    number smallint NOT NULL,
    state text DEFAULT 'open'::text NOT NULL,
    added_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    CONSTRAINT cell_control CHECK (((number <> 0) OR (state = 'open'::text))),
    CONSTRAINT cell_number CHECK (((number >= 0) AND (number <= 1023))),
    CONSTRAINT cell_state CHECK ((state = ANY (ARRAY['adding'::text, 'open'::text, 'draining'::text, 'closed'::text])))
);
CREATE TABLE public.cell_process (
    id uuid NOT NULL,
    name text NOT NULL,
    cells smallint[] NOT NULL,
    seen_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    CONSTRAINT cell_process_name CHECK ((length(name) <= 200))
);
CREATE TABLE public.cell_transfer (
    id uuid NOT NULL,
    merchant_id bigint NOT NULL,
    currency text NOT NULL,
    chain text,
    amount_minor numeric(78,0) NOT NULL,
    from_cell smallint NOT NULL,
    to_cell smallint NOT NULL,
    created_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    arrived_at timestamp with time zone,
    CONSTRAINT cell_transfer_amount CHECK ((amount_minor <> (0)::numeric)),
    CONSTRAINT cell_transfer_cells CHECK ((from_cell <> to_cell))
);
CREATE TABLE public.chain (
    slug text NOT NULL,
    name text NOT NULL,
    network_id bigint NOT NULL,
    finality text NOT NULL,
    confirmations integer,
    instant_finality boolean DEFAULT false NOT NULL,
    grace_s integer NOT NULL,
    typical_s integer NOT NULL,
    block_time_ms integer NOT NULL,
    coin_symbol text NOT NULL,
    coin_name text NOT NULL,
    wallet_symbol text NOT NULL,
    public_rpc_urls text[] DEFAULT '{}'::text[] NOT NULL,
    explorer_urls text[] DEFAULT '{}'::text[] NOT NULL,
    updated_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    refunders bytea[] DEFAULT '{}'::bytea[] NOT NULL,
    refund_approval_above numeric(38,18) DEFAULT 1000 NOT NULL,
    auto_refund_gas bigint DEFAULT 3000000 NOT NULL,
    CONSTRAINT chain_auto_refund_gas CHECK ((auto_refund_gas >= 0)),
    CONSTRAINT chain_confirmations CHECK (((confirmations >= 1) AND (confirmations <= 10000))),
    CONSTRAINT chain_finality CHECK ((finality = ANY (ARRAY['finalized'::text, 'confirmations'::text]))),
    CONSTRAINT chain_refund_approval CHECK ((refund_approval_above >= (0)::numeric)),
    CONSTRAINT chain_wallet_symbol CHECK (((length(wallet_symbol) >= 1) AND (length(wallet_symbol) <= 6)))
);
CREATE TABLE public.chain_contract (
    account_id bigint NOT NULL,
    chain text NOT NULL,
    address bytea NOT NULL,
    receiver bytea NOT NULL,
    deployed_block bigint NOT NULL,
    current boolean DEFAULT true NOT NULL,
    added_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    CONSTRAINT chain_contract_address CHECK ((octet_length(address) = 20)),
    CONSTRAINT chain_contract_block CHECK ((deployed_block >= 0)),
    CONSTRAINT chain_contract_receiver CHECK ((octet_length(receiver) = 20))
);
CREATE TABLE public.chain_cursor (
    chain text NOT NULL,
    block bigint NOT NULL,
    hash bytea,
    at timestamp with time zone,
    head bigint,
    head_at timestamp with time zone,
    window_at timestamp with time zone,
    second_look_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    second_look_block bigint,
    halted text,
    polled_at timestamp with time zone,
    watched_since timestamp with time zone,
    watched_until timestamp with time zone,
    auto_refund_day date,
    auto_refund_gas_used bigint DEFAULT 0 NOT NULL,
    CONSTRAINT chain_cursor_watched CHECK (((watched_since IS NULL) = (watched_until IS NULL)))
);
CREATE TABLE public.chain_hint (
    session_id uuid NOT NULL,
    tx_hash bytea NOT NULL,
    step text NOT NULL,
    state text DEFAULT 'unknown'::text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    final boolean DEFAULT false NOT NULL,
    posted_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    looked_at timestamp with time zone,
    settled_at timestamp with time zone,
    CONSTRAINT chain_hint_state CHECK ((state = ANY (ARRAY['unknown'::text, 'pending'::text, 'mined'::text, 'reverted'::text, 'foreign'::text, 'duplicate'::text]))),
    CONSTRAINT chain_hint_step CHECK ((step = ANY (ARRAY['approve'::text, 'pay'::text]))),
    CONSTRAINT chain_hint_tx_hash CHECK ((octet_length(tx_hash) = 32))
);
CREATE TABLE public.chain_receipt (
    id uuid NOT NULL,
    chain text NOT NULL,
    account_id bigint NOT NULL,
    block bigint NOT NULL,
    block_hash bytea NOT NULL,
    tx_hash bytea NOT NULL,
    log_index integer NOT NULL,
    uuid bytea NOT NULL,
    payer bytea,
    token bytea NOT NULL,
    receiver bytea NOT NULL,
    amount numeric(78,0) NOT NULL,
    session_id uuid,
    disposition text NOT NULL,
    final_at timestamp with time zone NOT NULL,
    CONSTRAINT chain_receipt_disposition CHECK ((disposition = ANY (ARRAY['credited'::text, 'duplicate'::text, 'underpaid'::text, 'overpaid'::text, 'wrong_token'::text, 'wrong_receiver'::text, 'late'::text, 'closed_session'::text, 'unknown_uuid'::text]))),
    CONSTRAINT chain_receipt_known CHECK (((session_id IS NOT NULL) OR (disposition = ANY (ARRAY['unknown_uuid'::text, 'wrong_receiver'::text]))))
);
CREATE TABLE public.chain_refund (
    id uuid NOT NULL,
    chain text NOT NULL,
    account_id bigint NOT NULL,
    block bigint NOT NULL,
    tx_hash bytea NOT NULL,
    log_index integer NOT NULL,
    uuid bytea NOT NULL,
    refund_ref uuid NOT NULL,
    token bytea NOT NULL,
    amount numeric(78,0) NOT NULL,
    destination bytea,
    sender bytea NOT NULL,
    disposition text,
    refund_id uuid,
    final_at timestamp with time zone NOT NULL,
    CONSTRAINT chain_refund_disposition CHECK ((disposition = ANY (ARRAY['settles'::text, 'unknown'::text, 'foreign'::text, 'mismatched'::text, 'twice'::text]))),
    CONSTRAINT chain_refund_settled CHECK (((refund_id IS NOT NULL) = (NOT (disposition IS DISTINCT FROM 'settles'::text))))
);
CREATE TABLE public.chain_refund_try (
    refund_id uuid NOT NULL,
    sender bytea NOT NULL,
    tx_hash bytea,
    asked_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    reverts integer DEFAULT 0 NOT NULL,
    CONSTRAINT chain_refund_try_sender CHECK ((octet_length(sender) = 20))
);
CREATE TABLE public.chain_sighting (
    chain text NOT NULL,
    tx_hash bytea NOT NULL,
    log_index integer NOT NULL,
    session_id uuid NOT NULL,
    exact boolean NOT NULL,
    block bigint NOT NULL,
    seen_at timestamp with time zone NOT NULL,
    gone_at timestamp with time zone
);
CREATE TABLE public.chain_token (
    chain text NOT NULL,
    symbol text NOT NULL,
    address bytea,
    decimals integer NOT NULL,
    approve_zero_first boolean DEFAULT false NOT NULL,
    minimum numeric(78,0) DEFAULT 1 NOT NULL,
    enabled boolean DEFAULT true NOT NULL,
    auto_refund_from numeric DEFAULT 1 NOT NULL,
    CONSTRAINT chain_token_address CHECK ((octet_length(address) = 20)),
    CONSTRAINT chain_token_auto_refund_from CHECK ((auto_refund_from >= (0)::numeric)),
    CONSTRAINT chain_token_decimals CHECK (((decimals >= 0) AND (decimals <= 18))),
    CONSTRAINT chain_token_minimum CHECK ((minimum > (0)::numeric))
);
CREATE TABLE public.checkout (
    id text NOT NULL,
    payment_id uuid NOT NULL
);
CREATE TABLE public.completed_sign_in (
    digest bytea NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT completed_sign_in_digest CHECK ((length(digest) = 32))
);
CREATE TABLE public.configuration_change (
    number bigint NOT NULL,
    table_name text NOT NULL,
    key jsonb NOT NULL,
    token uuid NOT NULL
);
CREATE TABLE public.configuration_copy (
    only_row boolean DEFAULT true NOT NULL,
    number bigint,
    token uuid,
    made_as text DEFAULT ''::text NOT NULL,
    copied_at timestamp with time zone,
    CONSTRAINT configuration_copy_only_row CHECK (only_row),
    CONSTRAINT configuration_copy_token CHECK (((number IS NULL) = (token IS NULL)))
);
CREATE TABLE public.configuration_version (
    only_row boolean DEFAULT true NOT NULL,
    version uuid DEFAULT gen_random_uuid() NOT NULL,
    number bigint DEFAULT 0 NOT NULL,
    token uuid DEFAULT gen_random_uuid() NOT NULL,
    changed_at timestamp with time zone,
    CONSTRAINT configuration_version_only_row CHECK (only_row)
);
CREATE TABLE public.console_session (
    id uuid NOT NULL,
    token_public_id text,
    digest bytea NOT NULL,
    digest_before bytea,
    address text,
    browser text NOT NULL,
    created_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    rotated_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    last_used_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    revoked_at timestamp with time zone,
    identity_id uuid,
    CONSTRAINT console_session_holder CHECK ((num_nonnulls(token_public_id, identity_id) = 1)),
    CONSTRAINT console_session_short CHECK ((expires_at <= (created_at + '12:00:00'::interval)))
);
CREATE TABLE public.delivery (
    event_id uuid NOT NULL,
    merchant_id bigint NOT NULL,
    state text NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    next_at timestamp with time zone NOT NULL,
    lease_until timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    delivered_at timestamp with time zone,
    CONSTRAINT delivery_state CHECK ((state = ANY (ARRAY['pending'::text, 'delivered'::text, 'dead'::text, 'skipped'::text])))
)
WITH (fillfactor='70');
CREATE TABLE public.dispute (
    id uuid NOT NULL,
    account_id bigint NOT NULL,
    reference text NOT NULL,
    capture_id uuid NOT NULL,
    case_id uuid NOT NULL,
    state text NOT NULL,
    funds text NOT NULL,
    amount_minor numeric(78,0) NOT NULL,
    currency text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    respond_by timestamp with time zone,
    held_minor numeric(78,0) NOT NULL,
    created_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    updated_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    CONSTRAINT dispute_amount CHECK ((amount_minor >= (0)::numeric)),
    CONSTRAINT dispute_funds CHECK ((funds = ANY (ARRAY['untouched'::text, 'withdrawn'::text, 'reinstated'::text]))),
    CONSTRAINT dispute_held CHECK ((held_minor >= (0)::numeric)),
    CONSTRAINT dispute_reason CHECK ((length(reason) <= 300)),
    CONSTRAINT dispute_reference CHECK (((length(reference) >= 1) AND (length(reference) <= 300))),
    CONSTRAINT dispute_state CHECK ((state = ANY (ARRAY['inquiry'::text, 'open'::text, 'under_review'::text, 'won'::text, 'lost'::text, 'closed'::text])))
);
CREATE TABLE public.endpoint_outage (
    merchant_id bigint NOT NULL,
    since timestamp with time zone DEFAULT public.clock() NOT NULL,
    until timestamp with time zone NOT NULL,
    trips integer DEFAULT 1 NOT NULL,
    detail text NOT NULL,
    CONSTRAINT endpoint_outage_trips CHECK ((trips > 0))
);
CREATE TABLE public.event (
    id uuid NOT NULL,
    payment_id uuid NOT NULL,
    merchant_id bigint NOT NULL,
    type text NOT NULL,
    body text NOT NULL,
    occurred_at timestamp with time zone NOT NULL,
    feed_position bigint,
    CONSTRAINT event_feed_position CHECK ((feed_position > 0)),
    CONSTRAINT event_type CHECK ((type = ANY (ARRAY['payment.completed'::text, 'payment.failed'::text, 'payment.expired'::text, 'payment.cancelled'::text])))
);
CREATE TABLE public.event_feed (
    merchant_id bigint NOT NULL,
    first_id uuid NOT NULL,
    last_position bigint DEFAULT 0 NOT NULL,
    CONSTRAINT event_feed_last CHECK ((last_position >= 0))
);
CREATE TABLE public.figure_mark (
    only_row boolean DEFAULT true NOT NULL,
    counted_until timestamp with time zone NOT NULL,
    closed_until timestamp with time zone NOT NULL,
    CONSTRAINT figure_mark_only_row CHECK (only_row)
);
CREATE TABLE public.fraud_decision (
    id uuid NOT NULL,
    merchant_id bigint NOT NULL,
    payment_id uuid,
    rule_id bigint NOT NULL,
    code text NOT NULL,
    level text NOT NULL,
    score integer NOT NULL,
    decided_at timestamp with time zone DEFAULT public.clock() NOT NULL
);
CREATE TABLE public.fraud_rule (
    id bigint NOT NULL,
    kind text NOT NULL,
    merchant_id bigint,
    value text,
    count_max integer,
    window_s integer,
    code text NOT NULL,
    level text NOT NULL,
    score integer NOT NULL,
    enabled boolean DEFAULT true NOT NULL,
    created_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    CONSTRAINT fraud_rule_code CHECK ((code ~ '^[A-Z][A-Z0-9_]{0,63}$'::text)),
    CONSTRAINT fraud_rule_count_max CHECK ((count_max >= 1)),
    CONSTRAINT fraud_rule_kind CHECK ((kind = ANY (ARRAY['COUNTRY'::text, 'PAYER'::text, 'EMAIL'::text, 'ADDRESS'::text, 'PAYER_VELOCITY'::text, 'ADDRESS_VELOCITY'::text]))),
    CONSTRAINT fraud_rule_level CHECK ((level = ANY (ARRAY['LOW'::text, 'MEDIUM'::text, 'HIGH'::text, 'CRITICAL'::text]))),
    CONSTRAINT fraud_rule_score CHECK (((score >= 0) AND (score <= 100))),
    CONSTRAINT fraud_rule_shape CHECK (
CASE
    WHEN (kind = ANY (ARRAY['PAYER_VELOCITY'::text, 'ADDRESS_VELOCITY'::text])) THEN ((value IS NULL) AND (count_max IS NOT NULL) AND (window_s IS NOT NULL))
    ELSE ((value IS NOT NULL) AND (count_max IS NULL) AND (window_s IS NULL))
END),
    CONSTRAINT fraud_rule_window_s CHECK (((window_s >= 1) AND (window_s <= 2592000)))
);
ALTER TABLE public.fraud_rule ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.fraud_rule_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.gateway_call (
    at timestamp with time zone NOT NULL,
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    account_id bigint NOT NULL,
    request text NOT NULL,
    payment_id uuid,
    session_id uuid,
    refund_id uuid,
    outcome text NOT NULL,
    detail text NOT NULL,
    duration_ms integer NOT NULL,
    CONSTRAINT gateway_call_detail CHECK ((length(detail) <= 300)),
    CONSTRAINT gateway_call_outcome CHECK ((outcome = ANY (ARRAY['answered'::text, 'rejected'::text, 'throttled'::text, 'unknown'::text, 'not_contacted'::text]))),
    CONSTRAINT gateway_call_request CHECK ((request = ANY (ARRAY['create_session'::text, 'inquire'::text, 'close_session'::text, 'refund'::text, 'inquire_refund'::text]))),
    CONSTRAINT gateway_call_subject CHECK ((num_nonnulls(session_id, refund_id) = 1))
);
CREATE TABLE public.gateway_outage (
    account_id bigint NOT NULL,
    channel text NOT NULL,
    trips integer DEFAULT 1 NOT NULL,
    since timestamp with time zone DEFAULT public.clock() NOT NULL,
    until timestamp with time zone NOT NULL,
    probed_at timestamp with time zone,
    detail text DEFAULT ''::text NOT NULL,
    CONSTRAINT gateway_outage_channel CHECK ((channel = ANY (ARRAY['sessions'::text, 'refunds'::text])))
);
CREATE TABLE public.gateway_payout (
    id uuid NOT NULL,
    account_id bigint NOT NULL,
    currency text NOT NULL,
    chain text,
    amount_minor numeric(78,0) NOT NULL,
    fee_minor numeric(78,0) NOT NULL,
    reference text NOT NULL,
    paid_on date NOT NULL,
    recorded_by text NOT NULL,
    created_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    reversed_at timestamp with time zone,
    reversed_by text,
    reversal_note text,
    CONSTRAINT gateway_payout_amount CHECK ((amount_minor <> (0)::numeric)),
    CONSTRAINT gateway_payout_reference CHECK (((length(reference) >= 1) AND (length(reference) <= 200))),
    CONSTRAINT gateway_payout_reversal CHECK ((num_nonnulls(reversed_at, reversed_by, reversal_note) = ANY (ARRAY[0, 3])))
);
CREATE TABLE public.hourly_figure (
    hour timestamp with time zone NOT NULL,
    subject text NOT NULL,
    kind text NOT NULL,
    value text NOT NULL,
    count bigint NOT NULL,
    amount numeric NOT NULL,
    CONSTRAINT hourly_figure_kind CHECK ((kind = ANY (ARRAY['PAID'::text, 'FAILED'::text, 'EXPIRED'::text, 'CANCELLED'::text, 'REFUNDED'::text, 'DISPUTED'::text, 'DELIVERED'::text, 'UNDELIVERED'::text]))),
    CONSTRAINT hourly_figure_subject CHECK ((subject = ANY (ARRAY['currency'::text, 'method'::text, 'country'::text])))
);
CREATE TABLE public.idempotency (
    merchant_id bigint NOT NULL,
    operation text NOT NULL,
    key uuid NOT NULL,
    request_hash bytea NOT NULL,
    payment_id uuid,
    country text,
    created_at timestamp with time zone NOT NULL,
    denial json,
    refund_id uuid,
    CONSTRAINT idempotency_outcome CHECK ((num_nonnulls(payment_id, denial) = 1))
);
CREATE TABLE public.installation (
    only_one boolean DEFAULT true NOT NULL,
    created_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    pepper_mark text,
    cell smallint DEFAULT 0 NOT NULL,
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    CONSTRAINT installation_cell CHECK (((cell >= 0) AND (cell <= 1023))),
    CONSTRAINT installation_only_one CHECK (only_one)
);
CREATE TABLE public.ledger_entry (
    fact_id uuid NOT NULL,
    fact text NOT NULL,
    leg text NOT NULL,
    merchant_id bigint,
    debit text NOT NULL,
    credit text NOT NULL,
    amount numeric(78,0) NOT NULL,
    currency text NOT NULL,
    chain text,
    created_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    entry_number bigint NOT NULL,
    CONSTRAINT ledger_entry_accounts CHECK ((debit <> credit)),
    CONSTRAINT ledger_entry_amount CHECK ((amount > (0)::numeric)),
    CONSTRAINT ledger_entry_credit CHECK ((split_part(credit, ':'::text, 1) = ANY (ARRAY['gateway_clearing'::text, 'chain_receiver'::text, 'chain_gas'::text, 'merchant_payable'::text, 'fee_income'::text, 'tax_payable'::text, 'suspense'::text, 'refund_reserve'::text, 'dispute_reserve'::text, 'bank'::text, 'cell_clearing'::text]))),
    CONSTRAINT ledger_entry_debit CHECK ((split_part(debit, ':'::text, 1) = ANY (ARRAY['gateway_clearing'::text, 'chain_receiver'::text, 'chain_gas'::text, 'merchant_payable'::text, 'fee_income'::text, 'tax_payable'::text, 'suspense'::text, 'refund_reserve'::text, 'dispute_reserve'::text, 'bank'::text, 'cell_clearing'::text]))),
    CONSTRAINT ledger_entry_fact CHECK ((fact = ANY (ARRAY['capture'::text, 'capture_adopted'::text, 'refund_reserved'::text, 'refund_done'::text, 'refund_reversed'::text, 'dispute_opened'::text, 'dispute_moved'::text, 'dispute_won'::text, 'dispute_lost'::text, 'case_accepted'::text, 'case_dismissed'::text, 'gateway_payout'::text, 'payout'::text, 'adjustment'::text, 'cell_transfer'::text])))
);
ALTER TABLE public.ledger_entry ALTER COLUMN entry_number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.ledger_entry_entry_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.mail (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    kind text NOT NULL,
    payment_id uuid,
    sealed bytea,
    attempts integer DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    next_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    CONSTRAINT mail_attempts CHECK ((attempts >= 0)),
    CONSTRAINT mail_content CHECK ((((kind = 'receipt'::text) = (payment_id IS NOT NULL)) AND ((kind = 'receipt'::text) = (sealed IS NULL)))),
    CONSTRAINT mail_kind CHECK ((kind = ANY (ARRAY['invitation'::text, 'receipt'::text])))
);
CREATE TABLE public.member (
    id uuid NOT NULL,
    merchant_id bigint NOT NULL,
    email text NOT NULL,
    role text NOT NULL,
    invited_by text NOT NULL,
    created_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    last_signed_in_at timestamp with time zone,
    CONSTRAINT member_email CHECK (((length(email) >= 3) AND (length(email) <= 150))),
    CONSTRAINT member_invited_by CHECK ((invited_by <> ''::text)),
    CONSTRAINT member_role CHECK ((role = ANY (ARRAY['developer'::text, 'finance'::text])))
);
CREATE TABLE public.member_link (
    member_id uuid NOT NULL,
    digest bytea NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT member_link_digest CHECK ((length(digest) = 32))
);
CREATE TABLE public.member_passkey (
    id uuid NOT NULL,
    member_id uuid NOT NULL,
    credential_id bytea NOT NULL,
    public_key bytea NOT NULL,
    sign_count bigint NOT NULL,
    challenged_at timestamp with time zone NOT NULL,
    created_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    last_used_at timestamp with time zone,
    CONSTRAINT member_passkey_credential CHECK (((length(credential_id) >= 1) AND (length(credential_id) <= 1023))),
    CONSTRAINT member_passkey_public_key CHECK (((length(public_key) >= 1) AND (length(public_key) <= 4096))),
    CONSTRAINT member_passkey_sign_count CHECK ((sign_count >= 0))
);
CREATE TABLE public.member_session (
    id uuid NOT NULL,
    member_id uuid NOT NULL,
    digest bytea NOT NULL,
    previous_digest bytea,
    rotated_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT member_session_digest CHECK ((length(digest) = 32))
);
CREATE TABLE public.merchant (
    id bigint NOT NULL,
    name text NOT NULL,
    callback_url text,
    tax_manager text DEFAULT 'NONE'::text NOT NULL,
    default_country text DEFAULT 'US'::text NOT NULL,
    logo_url text,
    support_url text,
    return_url text,
    allowed_origins text[] DEFAULT '{}'::text[] NOT NULL,
    created_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    locale text DEFAULT 'en'::text NOT NULL,
    activation text DEFAULT 'NEW'::text NOT NULL,
    activated_at timestamp with time zone,
    contract text DEFAULT ''::text NOT NULL,
    kyc text DEFAULT ''::text NOT NULL,
    requested_countries text[],
    requested_currencies text[],
    countries text[],
    currencies text[],
    market_changed_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    auto_refund boolean DEFAULT true NOT NULL,
    tax_country text DEFAULT 'selection'::text NOT NULL,
    allow_http boolean DEFAULT false NOT NULL,
    accent_colour text,
    terms_url text,
    mail_receipts boolean DEFAULT false NOT NULL,
    time_zone text DEFAULT 'UTC'::text NOT NULL,
    livemode boolean DEFAULT true NOT NULL,
    live_merchant bigint,
    refund_approval_above jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT merchant_accent_colour CHECK ((accent_colour ~ '^#[0-9a-f]{6}$'::text)),
    CONSTRAINT merchant_activated CHECK (((activation <> 'ACTIVE'::text) OR (activated_at IS NOT NULL))),
    CONSTRAINT merchant_activation CHECK ((activation = ANY (ARRAY['NEW'::text, 'REQUESTED'::text, 'APPLIED'::text, 'VALIDATED'::text, 'ACTIVE'::text, 'SUSPENDED'::text]))),
    CONSTRAINT merchant_callback_https CHECK ((allow_http OR (callback_url !~~* 'http://%'::text))),
    CONSTRAINT merchant_default_country CHECK ((length(default_country) = 2)),
    CONSTRAINT merchant_locale CHECK (((length(locale) >= 2) AND (length(locale) <= 35))),
    CONSTRAINT merchant_name CHECK (((length(name) >= 1) AND (length(name) <= 200))),
    CONSTRAINT merchant_refund_approval CHECK ((jsonb_typeof(refund_approval_above) = 'object'::text)),
    CONSTRAINT merchant_requested CHECK (((activation <> 'REQUESTED'::text) OR ((contract <> ''::text) AND (kyc <> ''::text) AND (COALESCE(cardinality(requested_countries), 0) > 0) AND (COALESCE(cardinality(requested_currencies), 0) > 0)))),
    CONSTRAINT merchant_tax_country CHECK ((tax_country = ANY (ARRAY['selection'::text, 'merchant'::text]))),
    CONSTRAINT merchant_tax_manager CHECK ((tax_manager = ANY (ARRAY['NONE'::text, 'SERVICE'::text]))),
    CONSTRAINT merchant_test_side CHECK ((livemode = (live_merchant IS NULL))),
    CONSTRAINT merchant_time_zone CHECK ((time_zone ~ '^[A-Za-z0-9_+/-]{1,64}$'::text))
);
CREATE TABLE public.merchant_cell (
    merchant_id bigint NOT NULL,
    cell smallint NOT NULL,
    since timestamp with time zone DEFAULT public.clock() NOT NULL,
    until timestamp with time zone,
    opened_at timestamp with time zone DEFAULT public.clock(),
    left_empty boolean DEFAULT false NOT NULL,
    CONSTRAINT merchant_cell_left_empty CHECK (((NOT left_empty) OR (until IS NOT NULL))),
    CONSTRAINT merchant_cell_opened CHECK (((until IS NULL) OR (opened_at IS NOT NULL))),
    CONSTRAINT merchant_cell_until CHECK ((until >= since))
);
ALTER TABLE public.merchant ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.merchant_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.money_case (
    id uuid NOT NULL,
    kind text NOT NULL,
    merchant_id bigint,
    payment_id uuid,
    session_id uuid,
    capture_id uuid,
    status text DEFAULT 'OPEN'::text NOT NULL,
    opened_at timestamp with time zone NOT NULL,
    receipt_id uuid,
    closed_at timestamp with time zone,
    closed_by text,
    note text DEFAULT ''::text NOT NULL,
    refund_id uuid,
    subject text,
    CONSTRAINT money_case_about CHECK ((num_nonnulls(session_id, receipt_id, refund_id, subject, capture_id) > 0)),
    CONSTRAINT money_case_closed CHECK ((((status = 'OPEN'::text) = (closed_at IS NULL)) AND ((status = 'OPEN'::text) = (closed_by IS NULL)))),
    CONSTRAINT money_case_kind CHECK ((kind = ANY (ARRAY['ORPHAN_CAPTURE'::text, 'LATE_PAYMENT'::text, 'DOUBLE_PAYMENT'::text, 'AMOUNT_MISMATCH'::text, 'TOKEN_MISMATCH'::text, 'UNKNOWN_REFERENCE'::text, 'REFUND_REVERSED'::text, 'RECONCILIATION'::text, 'UNDECIDED'::text, 'DISPUTE'::text, 'OUTSIDE_REFUND'::text, 'FRAUD_WARNING'::text]))),
    CONSTRAINT money_case_status CHECK ((status = ANY (ARRAY['OPEN'::text, 'REFUNDED'::text, 'ACCEPTED'::text, 'DISMISSED'::text]))),
    CONSTRAINT money_case_subject CHECK (((length(subject) >= 1) AND (length(subject) <= 300)))
);
CREATE TABLE public.operator_identity (
    id uuid NOT NULL,
    issuer text NOT NULL,
    subject text NOT NULL,
    name text NOT NULL,
    role text NOT NULL,
    created_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    signed_in_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    blocked_at timestamp with time zone,
    CONSTRAINT operator_identity_issuer CHECK (((length(issuer) >= 1) AND (length(issuer) <= 500))),
    CONSTRAINT operator_identity_name CHECK ((starts_with(name, 'oidc:'::text) AND ((length(name) >= 6) AND (length(name) <= 200)))),
    CONSTRAINT operator_identity_role CHECK ((role = ANY (ARRAY['viewer'::text, 'support'::text, 'finance'::text, 'admin'::text]))),
    CONSTRAINT operator_identity_subject CHECK (((length(subject) >= 1) AND (length(subject) <= 255)))
);
CREATE TABLE public.operator_token (
    public_id text NOT NULL,
    name text NOT NULL,
    digest bytea NOT NULL,
    created_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    revoked_at timestamp with time zone,
    role text DEFAULT 'viewer'::text NOT NULL,
    expires_at timestamp with time zone DEFAULT (public.clock() + '90 days'::interval) NOT NULL,
    last_used_at timestamp with time zone,
    CONSTRAINT operator_token_digest CHECK ((octet_length(digest) = 32)),
    CONSTRAINT operator_token_name CHECK (((length(name) >= 1) AND (length(name) <= 100))),
    CONSTRAINT operator_token_no_identity CHECK ((NOT starts_with(lower(name), 'oidc:'::text))),
    CONSTRAINT operator_token_public_id CHECK ((length(public_id) = 8)),
    CONSTRAINT operator_token_role CHECK ((role = ANY (ARRAY['viewer'::text, 'support'::text, 'finance'::text, 'admin'::text])))
);
CREATE TABLE public.payment (
    id uuid NOT NULL,
    merchant_id bigint NOT NULL,
    checkout_id text NOT NULL,
    status text DEFAULT 'PENDING'::text NOT NULL,
    version integer DEFAULT 1 NOT NULL,
    currency text NOT NULL,
    amount numeric(38,18) NOT NULL,
    amount_text text NOT NULL,
    payer_uid text NOT NULL,
    payer_email text,
    include_pegged_assets boolean NOT NULL,
    metadata json NOT NULL,
    tax_manager text NOT NULL,
    session_id uuid,
    receipt_id uuid,
    failure_reason text,
    refunded_amount numeric(38,18) DEFAULT 0 NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    paid_at timestamp with time zone,
    failed_at timestamp with time zone,
    expired_at timestamp with time zone,
    cancelled_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    reserved_amount numeric(38,18) DEFAULT 0 NOT NULL,
    CONSTRAINT payment_amount CHECK ((amount > (0)::numeric)),
    CONSTRAINT payment_cancelled CHECK (((status = 'CANCELLED'::text) = (cancelled_at IS NOT NULL))),
    CONSTRAINT payment_expired CHECK (((status = 'EXPIRED'::text) = (expired_at IS NOT NULL))),
    CONSTRAINT payment_failed CHECK (((status = 'FAILED'::text) = ((failed_at IS NOT NULL) AND (failure_reason IS NOT NULL)))),
    CONSTRAINT payment_has_session CHECK (((session_id IS NOT NULL) OR (status = ANY (ARRAY['PENDING'::text, 'EXPIRED'::text, 'CANCELLED'::text])))),
    CONSTRAINT payment_paid CHECK (((status = ANY (ARRAY['PAID'::text, 'PARTIALLY_REFUNDED'::text, 'REFUNDED'::text])) = ((paid_at IS NOT NULL) AND (receipt_id IS NOT NULL)))),
    CONSTRAINT payment_payer_uid CHECK (((length(payer_uid) >= 1) AND (length(payer_uid) <= 255))),
    CONSTRAINT payment_refund_state CHECK (
CASE status
    WHEN 'REFUNDED'::text THEN (refunded_amount = amount)
    WHEN 'PARTIALLY_REFUNDED'::text THEN ((refunded_amount > (0)::numeric) AND (refunded_amount < amount))
    ELSE (refunded_amount = (0)::numeric)
END),
    CONSTRAINT payment_refunded CHECK (((refunded_amount >= (0)::numeric) AND (refunded_amount <= amount))),
    CONSTRAINT payment_remainder CHECK (((refunded_amount + reserved_amount) <= amount)),
    CONSTRAINT payment_reserved CHECK ((reserved_amount >= (0)::numeric)),
    CONSTRAINT payment_reserved_state CHECK (((reserved_amount = (0)::numeric) OR (status = ANY (ARRAY['PAID'::text, 'PARTIALLY_REFUNDED'::text])))),
    CONSTRAINT payment_status CHECK ((status = ANY (ARRAY['PENDING'::text, 'PROCESSING'::text, 'PAID'::text, 'FAILED'::text, 'EXPIRED'::text, 'CANCELLED'::text, 'PARTIALLY_REFUNDED'::text, 'REFUNDED'::text]))),
    CONSTRAINT payment_tax_manager CHECK ((tax_manager = ANY (ARRAY['NONE'::text, 'SERVICE'::text])))
);
CREATE TABLE public.payment_method (
    id bigint NOT NULL,
    merchant_id bigint NOT NULL,
    account_id bigint NOT NULL,
    kind text NOT NULL,
    label text NOT NULL,
    currencies text[] NOT NULL,
    countries text[],
    chain text,
    token text,
    fee_mode text DEFAULT 'INCLUSIVE'::text NOT NULL,
    fee_rate numeric(9,8) DEFAULT 0 NOT NULL,
    "position" integer DEFAULT 0 NOT NULL,
    enabled boolean DEFAULT true NOT NULL,
    market_changed_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    livemode boolean DEFAULT true NOT NULL,
    limits text[] DEFAULT '{}'::text[] NOT NULL,
    CONSTRAINT payment_method_fee_mode CHECK ((fee_mode = ANY (ARRAY['INCLUSIVE'::text, 'EXCLUSIVE'::text]))),
    CONSTRAINT payment_method_fee_rate CHECK (((fee_rate >= (0)::numeric) AND (fee_rate <= (1)::numeric))),
    CONSTRAINT payment_method_kind CHECK ((kind = ANY (ARRAY['card'::text, 'redirect'::text, 'qr'::text, 'onchain'::text]))),
    CONSTRAINT payment_method_limits CHECK ((cardinality(limits) <= 100))
);
ALTER TABLE public.payment_method ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.payment_method_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.payout (
    id uuid NOT NULL,
    merchant_id bigint NOT NULL,
    currency text NOT NULL,
    chain text,
    amount_minor numeric(78,0) NOT NULL,
    reference text NOT NULL,
    paid_on date NOT NULL,
    recorded_by text NOT NULL,
    created_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    reversed_at timestamp with time zone,
    reversed_by text,
    reversal_note text,
    CONSTRAINT payout_amount CHECK ((amount_minor > (0)::numeric)),
    CONSTRAINT payout_reference CHECK (((length(reference) >= 1) AND (length(reference) <= 200))),
    CONSTRAINT payout_reversal CHECK ((num_nonnulls(reversed_at, reversed_by, reversal_note) = ANY (ARRAY[0, 3])))
);
CREATE TABLE public.proposal (
    id uuid NOT NULL,
    action text NOT NULL,
    merchant_id bigint,
    sealed bytea,
    changes text[] NOT NULL,
    proposed_by text NOT NULL,
    why text NOT NULL,
    proposed_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    expires_at timestamp with time zone DEFAULT (public.clock() + '24:00:00'::interval) NOT NULL,
    status text DEFAULT 'WAITING'::text NOT NULL,
    decided_by text,
    decided_at timestamp with time zone,
    note text DEFAULT ''::text NOT NULL,
    CONSTRAINT proposal_changes CHECK ((cardinality(changes) > 0)),
    CONSTRAINT proposal_decided CHECK ((((status = 'WAITING'::text) = (decided_by IS NULL)) AND ((status = 'WAITING'::text) = (decided_at IS NULL)) AND ((status = 'WAITING'::text) OR (sealed IS NULL)))),
    CONSTRAINT proposal_proposed_by CHECK ((proposed_by <> ''::text)),
    CONSTRAINT proposal_status CHECK ((status = ANY (ARRAY['WAITING'::text, 'APPROVED'::text, 'REJECTED'::text]))),
    CONSTRAINT proposal_two_people CHECK (((status <> 'APPROVED'::text) OR (decided_by <> proposed_by)))
);
CREATE TABLE public.provider (
    name text NOT NULL,
    wire_name text NOT NULL,
    enabled boolean DEFAULT true NOT NULL,
    changed_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    CONSTRAINT provider_wire_name CHECK ((wire_name ~ '^[a-z0-9][a-z0-9_-]{0,31}$'::text))
);
CREATE TABLE public.provider_account (
    id bigint NOT NULL,
    provider text NOT NULL,
    merchant_id bigint,
    base_url text NOT NULL,
    sealed bytea,
    enabled boolean DEFAULT true NOT NULL,
    created_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    name text DEFAULT ''::text NOT NULL,
    changed_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    countries text[],
    livemode boolean DEFAULT true NOT NULL,
    CONSTRAINT provider_account_countries CHECK ((cardinality(countries) > 0)),
    CONSTRAINT provider_account_test_gateway CHECK (((provider <> 'test'::text) OR (NOT livemode)))
);
ALTER TABLE public.provider_account ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.provider_account_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.rate_limit (
    merchant_id bigint NOT NULL,
    class text NOT NULL,
    per_s integer NOT NULL,
    burst integer NOT NULL,
    CONSTRAINT rate_limit_burst CHECK (((burst >= 1) AND (burst <= 10000000))),
    CONSTRAINT rate_limit_class CHECK ((class = ANY (ARRAY['create'::text, 'read'::text]))),
    CONSTRAINT rate_limit_per_s CHECK (((per_s >= 1) AND (per_s <= 1000000)))
);
CREATE UNLOGGED TABLE public.rate_state (
    merchant_id bigint NOT NULL,
    class text NOT NULL,
    full_at numeric NOT NULL,
    granted integer NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE public.reconciliation_balance (
    run_id uuid NOT NULL,
    currency text NOT NULL,
    block bigint NOT NULL,
    receiver numeric,
    refunders numeric,
    ledger numeric NOT NULL,
    expected numeric
);
CREATE TABLE public.reconciliation_blocks (
    run_id uuid NOT NULL,
    account_id bigint NOT NULL,
    first_block bigint NOT NULL,
    last_block bigint NOT NULL,
    next_block bigint NOT NULL,
    differences integer DEFAULT 0 NOT NULL,
    opened integer DEFAULT 0 NOT NULL,
    cell_away smallint,
    CONSTRAINT reconciliation_blocks_order CHECK (((first_block <= next_block) AND (next_block <= (last_block + 1))))
);
CREATE TABLE public.reconciliation_file (
    source text NOT NULL,
    account_id bigint NOT NULL,
    name text NOT NULL,
    version text NOT NULL,
    run_id uuid NOT NULL
);
CREATE TABLE public.reconciliation_run (
    id uuid NOT NULL,
    account_id bigint NOT NULL,
    source text NOT NULL,
    name text NOT NULL,
    sha256 text NOT NULL,
    status text NOT NULL,
    attempts integer DEFAULT 1 NOT NULL,
    lease_until timestamp with time zone NOT NULL,
    problem text DEFAULT ''::text NOT NULL,
    since timestamp with time zone,
    until timestamp with time zone,
    opened integer DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    ended_at timestamp with time zone,
    CONSTRAINT reconciliation_run_ended CHECK (((status = 'running'::text) = (ended_at IS NULL))),
    CONSTRAINT reconciliation_run_problem CHECK (((status = 'failed'::text) = (problem <> ''::text))),
    CONSTRAINT reconciliation_run_source CHECK ((source = ANY (ARRAY['folder'::text, 's3'::text, 'chain'::text, 'api'::text]))),
    CONSTRAINT reconciliation_run_status CHECK ((status = ANY (ARRAY['running'::text, 'matched'::text, 'differs'::text, 'failed'::text])))
);
CREATE TABLE public.reconciliation_sum (
    run_id uuid NOT NULL,
    type text NOT NULL,
    currency text NOT NULL,
    lines bigint NOT NULL,
    records bigint NOT NULL,
    gateway numeric NOT NULL,
    service numeric NOT NULL,
    ledger numeric NOT NULL,
    merchants numeric NOT NULL,
    CONSTRAINT reconciliation_sum_type CHECK ((type = ANY (ARRAY['payment'::text, 'refund'::text, 'dispute'::text, 'dispute_reversal'::text, 'payout'::text])))
);
CREATE TABLE public.refund (
    id uuid NOT NULL,
    merchant_id bigint,
    payment_id uuid,
    capture_id uuid NOT NULL,
    case_id uuid,
    amount numeric(38,18),
    amount_text text,
    currency text NOT NULL,
    amount_minor numeric(78,0) NOT NULL,
    reason text,
    destination text,
    status text DEFAULT 'PENDING'::text NOT NULL,
    failure_reason text,
    step text NOT NULL,
    reference text,
    requested_by text NOT NULL,
    approved_by text,
    note text DEFAULT ''::text NOT NULL,
    inquiries integer DEFAULT 0 NOT NULL,
    next_at timestamp with time zone,
    sent_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    updated_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    CONSTRAINT refund_amount CHECK ((amount > (0)::numeric)),
    CONSTRAINT refund_amount_minor CHECK ((amount_minor > (0)::numeric)),
    CONSTRAINT refund_ended CHECK (((status = 'PENDING'::text) = (step <> 'ended'::text))),
    CONSTRAINT refund_failed CHECK (((status = 'FAILED'::text) = (failure_reason IS NOT NULL))),
    CONSTRAINT refund_failure_reason CHECK ((failure_reason = ANY (ARRAY['DECLINED'::text, 'REJECTED'::text]))),
    CONSTRAINT refund_owner CHECK (((case_id IS NULL) = ((amount IS NOT NULL) AND (amount_text IS NOT NULL) AND (payment_id IS NOT NULL) AND (merchant_id IS NOT NULL)))),
    CONSTRAINT refund_reason CHECK (((length(reason) >= 1) AND (length(reason) <= 500))),
    CONSTRAINT refund_status CHECK ((status = ANY (ARRAY['PENDING'::text, 'SUCCEEDED'::text, 'FAILED'::text]))),
    CONSTRAINT refund_step CHECK ((step = ANY (ARRAY['approval'::text, 'queued'::text, 'sent'::text, 'ended'::text]))),
    CONSTRAINT refund_two_persons CHECK ((approved_by <> requested_by))
);
CREATE TABLE public.restriction (
    type text NOT NULL,
    country text NOT NULL,
    active boolean DEFAULT true NOT NULL,
    changed_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    CONSTRAINT restriction_country CHECK ((country ~ '^([A-Z]{2}|T1)$'::text)),
    CONSTRAINT restriction_type CHECK ((type = ANY (ARRAY['CRYPTO'::text, 'ONRAMP'::text])))
);
CREATE TABLE public.ring_key (
    name text NOT NULL,
    mark text NOT NULL,
    since timestamp with time zone DEFAULT public.clock() NOT NULL,
    retired_at timestamp with time zone
);
CREATE TABLE public.schema_migration (
    number integer NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.session (
    id uuid NOT NULL,
    payment_id uuid NOT NULL,
    account_id bigint NOT NULL,
    payment_method_id bigint NOT NULL,
    provider text NOT NULL,
    life text DEFAULT 'opening'::text NOT NULL,
    outcome text,
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
    total_minor numeric(78,0) NOT NULL,
    return_url text,
    reference text,
    next_action json,
    inquire_at timestamp with time zone,
    inquiries integer DEFAULT 0 NOT NULL,
    opened_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    closing_at timestamp with time zone,
    ended_at timestamp with time zone,
    provider_name text NOT NULL,
    silent_since timestamp with time zone,
    declines integer DEFAULT 0 NOT NULL,
    token_address bytea,
    token_decimals integer,
    token_zero_first boolean,
    number smallint,
    returned_at timestamp with time zone,
    form_shown_at timestamp with time zone,
    CONSTRAINT session_ended CHECK (((life = 'ended'::text) = ((ended_at IS NOT NULL) AND (outcome IS NOT NULL)))),
    CONSTRAINT session_life CHECK ((life = ANY (ARRAY['opening'::text, 'open'::text, 'closing'::text, 'ended'::text]))),
    CONSTRAINT session_total CHECK ((total_minor > (0)::numeric))
);
CREATE TABLE public.statement (
    id uuid NOT NULL,
    merchant_id bigint NOT NULL,
    currency text NOT NULL,
    chain text NOT NULL,
    number integer NOT NULL,
    day date NOT NULL,
    time_zone text NOT NULL,
    opening_minor numeric(78,0) NOT NULL,
    payments_minor numeric(78,0) NOT NULL,
    fees_minor numeric(78,0) NOT NULL,
    tax_minor numeric(78,0) NOT NULL,
    refunds_minor numeric(78,0) NOT NULL,
    disputes_minor numeric(78,0) NOT NULL,
    adjustments_minor numeric(78,0) NOT NULL,
    payouts_minor numeric(78,0) NOT NULL,
    closing_minor numeric(78,0) NOT NULL,
    first_number bigint NOT NULL,
    last_number bigint NOT NULL,
    until_at timestamp with time zone NOT NULL,
    closed_number bigint NOT NULL,
    closed_at timestamp with time zone NOT NULL,
    created_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    CONSTRAINT statement_number CHECK ((number > 0)),
    CONSTRAINT statement_sum CHECK ((closing_minor = (((((((opening_minor + payments_minor) + fees_minor) + tax_minor) + refunds_minor) + disputes_minor) + adjustments_minor) + payouts_minor)))
);
CREATE TABLE public.statement_close (
    merchant_id bigint NOT NULL,
    day date NOT NULL,
    closed_at timestamp with time zone NOT NULL,
    closed_number bigint NOT NULL,
    next_number bigint NOT NULL
);
CREATE TABLE public.tax_rate (
    country text NOT NULL,
    rate numeric(9,8) NOT NULL,
    CONSTRAINT tax_rate_country CHECK ((length(country) = 2)),
    CONSTRAINT tax_rate_rate CHECK (((rate >= (0)::numeric) AND (rate <= (1)::numeric)))
);
CREATE TABLE public.test_clock (
    merchant_id bigint NOT NULL,
    livemode boolean DEFAULT false NOT NULL,
    advanced_s bigint NOT NULL,
    CONSTRAINT test_clock_advanced CHECK ((advanced_s >= 0)),
    CONSTRAINT test_clock_livemode CHECK ((NOT livemode))
);
CREATE TABLE public.test_refund (
    refund_id uuid NOT NULL,
    account_id bigint NOT NULL,
    session_id uuid NOT NULL,
    amount_minor bigint NOT NULL,
    state text NOT NULL,
    done_at timestamp with time zone,
    CONSTRAINT test_refund_amount CHECK ((amount_minor > 0)),
    CONSTRAINT test_refund_state CHECK ((state = ANY (ARRAY['done'::text, 'pending'::text, 'declined'::text])))
);
CREATE TABLE public.test_session (
    session_id uuid NOT NULL,
    account_id bigint NOT NULL,
    livemode boolean DEFAULT false NOT NULL,
    amount_minor bigint NOT NULL,
    currency text NOT NULL,
    return_url text NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    status text NOT NULL,
    card text,
    decline_code text,
    decides_at timestamp with time zone,
    captured_minor bigint,
    captured_currency text,
    dispute text,
    created_at timestamp with time zone DEFAULT public.clock() NOT NULL,
    CONSTRAINT test_session_amount CHECK ((amount_minor > 0)),
    CONSTRAINT test_session_dispute CHECK (((dispute IS NULL) OR ((status = 'paid'::text) AND (dispute = ANY (ARRAY['open'::text, 'won'::text, 'lost'::text]))))),
    CONSTRAINT test_session_livemode CHECK ((NOT livemode)),
    CONSTRAINT test_session_paid CHECK (((status <> 'paid'::text) OR (num_nulls(captured_minor, captured_currency) = 0))),
    CONSTRAINT test_session_status CHECK ((status = ANY (ARRAY['open'::text, 'challenge'::text, 'deciding'::text, 'paid'::text, 'declined'::text, 'cancelled'::text, 'closed'::text])))
);
INSERT INTO public.api_key VALUES
	('yAqM7lNS', 1, 'first', '\xb95ac0af489f4c8f4368679ac30ac918b2b1fe5675b577239a634fe181432780', '2026-11-28 17:40:14.507+00', NULL, NULL, true),
	('pUFvTeGL', 2, 'first', '\x3fa9735e415cd0ddc5d022a00fd236ea01544c5522738cbc4fac0b22117b6840', '2026-11-28 17:40:14.993+00', NULL, NULL, true),
	('3ptNQbnG', 2, 'old server', '\xda029fb7d57bb0cb6009ce5ae7f7cd05d1a123de30369c45922b586f78aa1181', '2026-11-28 17:40:15.018+00', NULL, NULL, true);
INSERT INTO public.audit VALUES
	('01a2233e-4a1e-8002-b5da-70519084a39d', '2026-11-28 17:40:14.495+00', 'test', 'it is arranged', 'account.add', NULL, '{"provider":"fake","base_url":"http://gateway.test","credentials":"(hidden)","name":"","test":false}'),
	('01a2233e-4a2d-8000-86f3-a3a182dcbbb8', '2026-11-28 17:40:14.509+00', 'test', 'it is arranged', 'merchant.create', 1, '{"name":"Nimbus Books","methods":"none","auto_refund":false,"allow_http":false}'),
	('01a2233e-4bf9-8002-acce-1aa4556c51c7', '2026-11-28 17:40:14.969+00', 'test', 'it is arranged', 'operator.issue', NULL, '{"name":"Ada","role":"admin","days":90}'),
	('01a2233e-4bfc-8003-9541-c5f01380c222', '2026-11-28 17:40:14.972+00', 'test', 'it is arranged', 'operator.issue', NULL, '{"name":"Alan","role":"admin","days":90}'),
	('01a2233e-4c05-8003-a633-2420a87eb5f8', '2026-11-28 17:40:14.981+00', 'test', 'it is arranged', 'operator.issue', NULL, '{"name":"Bob","role":"admin","days":90}'),
	('01a2233e-4c06-8002-9caf-85e1c49d5cc9', '2026-11-28 17:40:14.982+00', 'test', 'it is arranged', 'operator.issue', NULL, '{"name":"Eve","role":"admin","days":90}'),
	('01a2233e-4c13-8001-b62d-cb713165e962', '2026-11-28 17:40:14.995+00', 'Ada', 'ticket 7', 'merchant.create', 2, '{"name":"Nimbus Books","methods":"none","auto_refund":true,"allow_http":false}'),
	('01a2233e-4c17-8002-a8fd-09fc71f05fd8', '2026-11-28 17:40:14.999+00', 'Ada', 'ticket 7', 'approval.propose', 2, '{"approval_id":"appr_0355XqC022IgIgRo6ZjBw2","action":"account.add","fields":{"provider":"fake","base_url":"https://gateway.example.com","credentials":"(hidden)","merchant_id":2,"name":"","test":false}}'),
	('01a2233e-4c1d-8000-9dec-c9856c8895c7', '2026-11-28 17:40:15.005+00', 'Ada', 'ticket 7', 'account.add', 2, '{"provider":"fake","base_url":"https://gateway.example.com","credentials":"(hidden)","merchant_id":2,"name":"","test":false,"approval_id":"appr_0355XqC022IgIgRo6ZjBw2","approved_by":"Alan"}'),
	('01a2233e-4c21-8002-b627-b0b53e332d07', '2026-11-28 17:40:15.009+00', 'Alan', 'agreed', 'approval.approve', 2, '{"approval_id":"appr_0355XqC022IgIgRo6ZjBw2","note":"","action":"account.add","proposed_by":"Ada"}'),
	('01a2233e-4c27-8000-a457-fe8b611eda8b', '2026-11-28 17:40:15.016+00', 'Ada', 'ticket 7', 'method.add', 2, '{"merchant_id":2,"account_id":2,"kind":"card","label":"Card","currencies":["THB","JPY"],"fee_mode":"INCLUSIVE","fee_rate":"0","position":0}'),
	('01a2233e-4c2a-8002-a111-7bac0ba3a4fb', '2026-11-28 17:40:15.018+00', 'Ada', 'ticket 7', 'key.issue', 2, '{"merchant_id":2,"name":"old server","test":false}'),
	('01a2233e-4c89-8002-801a-66b61af5115e', '2026-11-28 17:40:15.114+00', 'Ada', 'ticket 7', 'fraud.add', 2, '{"kind":"PAYER","value":"buyer-9","merchant_id":2,"level":"HIGH","score":100}'),
	('01a2233e-4ca1-8000-a829-52fc1ec2827c', '2026-11-28 17:40:15.137+00', 'Bob', 'ticket 7', 'approval.propose', NULL, '{"approval_id":"appr_0355XqCDU4lybp6t3sGNKf","action":"chain.set","fields":{"chain":"native","refund_approval_above":"101"}}'),
	('01a2233e-4ca7-8000-8b14-f81c175a30db', '2026-11-28 17:40:15.143+00', 'Bob', 'ticket 7', 'approval.propose', NULL, '{"approval_id":"appr_0355XqCE4L34UYaCDPETV1","action":"chain.set","fields":{"chain":"native","refund_approval_above":"102"}}'),
	('01a2233e-4cc9-8003-8f1f-ee6eede368e1', '2026-11-28 17:40:15.177+00', 'Ada', 'ticket 7', 'approval.propose', NULL, '{"approval_id":"appr_0355XqCHNpJEWQtH2g5hbw","action":"chain.add-contract","fields":{"chain":"bsc","address":"0xfb6916095ca1df60bb79ce92ce3ea74c37c5d359","receiver":"0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed","deployed_block":7,"name":""}}'),
	('01a2233e-4ce0-8000-a887-35765e8156fb', '2026-11-28 17:40:15.2+00', 'Ada', 'ticket 7', 'chain.add-contract', NULL, '{"chain":"bsc","address":"0xfb6916095ca1df60bb79ce92ce3ea74c37c5d359","receiver":"0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed","deployed_block":7,"name":"","approval_id":"appr_0355XqCHNpJEWQtH2g5hbw","approved_by":"Alan"}'),
	('01a2233e-4ce1-8003-aedf-a3d100d905b2', '2026-11-28 17:40:15.201+00', 'Alan', 'agreed', 'approval.approve', NULL, '{"approval_id":"appr_0355XqCHNpJEWQtH2g5hbw","note":"","action":"chain.add-contract","proposed_by":"Ada"}'),
	('01a2233e-4d26-8000-b033-2ee63d9b8299', '2026-11-28 17:40:15.271+00', 'Ada', 'ticket 7', 'payout.record', 1, '{"merchant_id":1,"amount":"1.00","currency":"THB","reference":"transfer 1","id":"01a2233e-4d11-8000-a221-c731d1397892"}'),
	('01a2233e-4d2b-8001-9895-e2006d376bb1', '2026-11-28 17:40:15.275+00', 'Ada', 'ticket 7', 'gateway-payout.record', 2, '{"account_id":2,"amount":"9.00","currency":"THB","reference":"po_1","id":"01a2233e-4d28-8001-a210-47b1b15ec623"}'),
	('01a2233e-4df4-8000-93b4-eeaa821caf1a', '2026-11-28 17:40:15.477+00', 'Ada', 'ticket 7', 'merchant.set-callback-url', 2, '{"merchant_id":2,"callback_url":"https://93.184.216.34/hooks","allow_http":false}'),
	('01a2233e-4dfe-8003-b311-6cad2ebb2b88', '2026-11-28 17:40:15.486+00', 'Ada', 'ticket 7', 'merchant.invite', 2, '{"merchant_id":2,"email":"ann@example.com","role":"developer"}'),
	('01a2233e-4e0d-8001-ab43-14e8f187ad96', '2026-11-28 17:40:15.503+00', 'Ada', 'ticket 7', 'approval.propose', NULL, '{"approval_id":"appr_0355XqCmy0TuxNCweMi708","action":"tax.set","fields":{"country":"TH","rate":"0.07"}}'),
	('01a2233e-4e16-8002-abea-84ff5d0db347', '2026-11-28 17:40:15.512+00', 'Ada', 'ticket 7', 'tax.set', NULL, '{"country":"TH","rate":"0.07","approval_id":"appr_0355XqCmy0TuxNCweMi708","approved_by":"Alan"}'),
	('01a2233e-4e19-8001-9d17-9b5808e82a64', '2026-11-28 17:40:15.513+00', 'Alan', 'agreed', 'approval.approve', NULL, '{"approval_id":"appr_0355XqCmy0TuxNCweMi708","note":"","action":"tax.set","proposed_by":"Ada"}'),
	('01a2233e-4e1d-8000-97a1-4fe3dd9b8700', '2026-11-28 17:40:15.518+00', 'Ada', 'ticket 7', 'restriction.add', NULL, '{"type":"CRYPTO","country":"CU"}'),
	('01a2233e-4e2c-8001-82ff-3c83e527dfb0', '2026-11-28 17:40:15.534+00', 'Ada', 'ticket 7', 'fraud.add', 2, '{"kind":"EMAIL","value":"@Spam.example","merchant_id":2,"code":"SPAM","level":"LOW","score":10}'),
	('01a2233e-4e33-8002-ab23-0778e039b69a', '2026-11-28 17:40:15.54+00', 'Ada', 'ticket 7', 'limit.set', 2, '{"merchant_id":2,"kind":"create","per_s":5,"burst":7}'),
	('01a2233e-4e3d-8001-b1b5-721592add74d', '2026-11-28 17:40:15.549+00', 'Ada', 'ticket 7', 'approval.propose', NULL, '{"approval_id":"appr_0355XqCrk9S3HjkRK2zMWD","action":"chain.set","fields":{"chain":"native","finality":"confirmations","confirmations":12,"instant_finality":false,"public_rpc_urls":["https://rpc.example.com"],"explorer_urls":["https://explorer.example.com"],"auto_refund_gas":2000000}}'),
	('01a2233e-4e44-8003-a141-eb1652b8a856', '2026-11-28 17:40:15.556+00', 'Ada', 'ticket 7', 'chain.set', NULL, '{"chain":"native","finality":"confirmations","confirmations":12,"instant_finality":false,"public_rpc_urls":["https://rpc.example.com"],"explorer_urls":["https://explorer.example.com"],"auto_refund_gas":2000000,"approval_id":"appr_0355XqCrk9S3HjkRK2zMWD","approved_by":"Alan"}'),
	('01a2233e-4e45-8001-8614-cecf7d19474e', '2026-11-28 17:40:15.557+00', 'Alan', 'agreed', 'approval.approve', NULL, '{"approval_id":"appr_0355XqCrk9S3HjkRK2zMWD","note":"","action":"chain.set","proposed_by":"Ada"}'),
	('01a2233e-4e67-8000-875a-82362df9f691', '2026-11-28 17:40:15.591+00', 'Ada', 'ticket 7', 'case.resolve', 1, '{"case_id":"case_0355XqCMG0zSsjhoOjZoMG","resolution":"dismiss","note":"it went back"}');
INSERT INTO public.buyer_call_state VALUES
	(1, 1795887615.72400000000000000000);
INSERT INTO public.callback_secret VALUES
	('01a2233e-4a2c-8000-8557-8750258a8d81', 1, '\x047465737480db169993457bd21761907d304d89d3fdfef79c7c8d043d013867caf66ceed73f67d033530f1a96b8cfd3cc4f4007272e7eb65c89036c3bc481e011', '2026-11-28 17:40:14.508+00', NULL),
	('01a2233e-4c11-8002-bc54-07ecc88780c3', 2, '\x0474657374dbc182d8dfab2d89fbefed218317acab52fe2cb066f8520581666d6b9cfbe1f53620affa3344ca269a57002c4bd25382bed367a94d78703f5fddc9d8', '2026-11-28 17:40:14.994+00', NULL);
INSERT INTO public.capture VALUES
	('01a2233e-4c6a-8002-bef8-10182d657dfc', 1, 'cap-01a2233e-4c2b-8000-89be-2ca8db7812d5', '7f36dbbd-234e-a606-5a08-4d270f946c00', '01a2233e-4c2b-8000-89be-2ca8db7812d5', 'THB', 159000, true, 0, 18000, '2026-11-28 17:40:15.082+00', NULL, NULL, 0),
	('01a2233e-4d52-8000-8597-1414230cec4d', 1, 'cap-01a2233e-4d2c-8003-ba65-ced09b258fd5', '7f6fdc0b-8555-aefc-63ca-8d670f946c00', '01a2233e-4d2c-8003-ba65-ced09b258fd5', 'THB', 159000, true, 0, 18000, '2026-11-28 17:40:15.313+00', NULL, NULL, 0),
	('01a2233e-4eca-8001-97be-c452c1387c48', 1, 'cap-01a2233e-4e82-8003-a78f-35b8ba8ed190', '542ff2ee-ab79-61cf-c2f8-3a270f946c00', '01a2233e-4e82-8003-a78f-35b8ba8ed190', 'THB', 159000, true, 0, 0, '2026-11-28 17:40:15.689+00', NULL, NULL, 0),
	('01a2233e-4eef-8003-810b-b71f4c4b82f3', 1, 'cap-01a2233e-4eda-8000-b00c-c1c4d90d49a2', '545faa79-5aa3-d61a-82b6-2f670f946c00', '01a2233e-4eda-8000-b00c-c1c4d90d49a2', 'THB', 159000, true, 0, 0, '2026-11-28 17:40:15.726+00', NULL, NULL, 0),
	('01a2233e-4ef9-8003-a7b5-17533d923445', 1, 'second', '545faa79-5aa3-d61a-82b6-2f670f946c00', '01a2233e-4eda-8000-b00c-c1c4d90d49a2', 'THB', 1, false, 0, 0, '2026-11-28 17:40:15.736+00', NULL, NULL, 0),
	('22849b38-6e16-430c-a635-01f8babea9f2', 3, '0xaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:3', NULL, NULL, 'USDT', 500, false, 0, 0, '2026-11-28 17:40:15.751+00', '041aaf1f-f5e8-4673-9f07-1c9c44c06383', NULL, 0);
INSERT INTO public.cell VALUES
	(0, 'open', '2026-11-28 17:40:14.288+00');
INSERT INTO public.chain VALUES
	('ethereum', 'Ethereum', 1, 'finalized', NULL, false, 2400, 960, 12000, 'ETH', 'Ether', 'ETH', '{}', '{}', '2026-11-28 17:40:14.098+00', '{}', 1000.000000000000000000, 3000000),
	('bsc', 'BNB Smart Chain', 56, 'finalized', NULL, false, 600, 4, 750, 'BNB', 'BNB', 'BNB', '{}', '{}', '2026-11-28 17:40:14.098+00', '{}', 1000.000000000000000000, 3000000),
	('native', 'Native', 612055, 'confirmations', 12, false, 600, 30, 2000, 'NATIVED', 'Native dollar', 'NATVD', '{https://rpc.example.com}', '{https://explorer.example.com}', '2026-11-28 17:40:15.554+00', '{}', 1000.000000000000000000, 2000000);
INSERT INTO public.chain_contract VALUES
	(3, 'bsc', '\xfb6916095ca1df60bb79ce92ce3ea74c37c5d359', '\x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed', 7, true, '2026-11-28 17:40:15.195+00');
INSERT INTO public.chain_cursor VALUES
	('bsc', 6, NULL, NULL, NULL, NULL, NULL, '2026-11-28 17:40:15.199+00', NULL, NULL, NULL, NULL, NULL, NULL, 0);
INSERT INTO public.chain_receipt VALUES
	('041aaf1f-f5e8-4673-9f07-1c9c44c06383', 'bsc', 3, 7, '\x0505050505050505050505050505050505050505050505050505050505050505', '\xaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 3, '\x', '\x0303030303030303030303030303030303030303', '\x55d398326f99059ff775485246999027b3197955', '\x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed', 500, NULL, 'unknown_uuid', '2026-11-28 17:40:15.751+00');
INSERT INTO public.chain_token VALUES
	('bsc', 'USDT', '\x55d398326f99059ff775485246999027b3197955', 18, false, 1, true, 1),
	('bsc', 'USDC', '\x8ac76a51cc950d9822d68b83fe1ad97b32cd580d', 18, false, 1, false, 1),
	('native', 'USDT', NULL, 18, false, 1, true, 1),
	('native', 'NATIVED', '\x0000000000000000000000000000000000000000', 18, false, 1, true, 1),
	('ethereum', 'USDT', '\xdac17f958d2ee523a2206206994597c13d831ec7', 6, true, 1, true, 20),
	('ethereum', 'USDC', '\xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48', 6, false, 1, false, 20);
INSERT INTO public.checkout VALUES
	('cs_vFLJzSAzaBDs6DNd', '01a2233e-4c2b-8000-89be-2ca8db7812d5'),
	('cs_pl95pGU8N5AqnevZ', '01a2233e-4c84-8001-a6de-4e0dc0df7639'),
	('cs_5czj4Couk94OPX6J', '01a2233e-4ce5-8000-b88d-e430fbce6273'),
	('cs_CSAFnj3l7B4pi3ob', '01a2233e-4cfb-8001-b390-35d679a62ce2'),
	('cs_rPGWU88GCa5wz9Ex', '01a2233e-4cfe-8001-ac7e-7225d2e19a6a'),
	('cs_Lv4lR7IozFm3w8dg', '01a2233e-4cff-8002-8a25-7b15222b44bd'),
	('cs_fJjHJI6WbDCg7FDC', '01a2233e-4d2c-8003-ba65-ced09b258fd5'),
	('cs_Uvv2m2PTQ4UXBqjV', '01a2233e-4e82-8003-a78f-35b8ba8ed190'),
	('cs_pmXifPJrDv5eZEBl', '01a2233e-4eda-8000-b00c-c1c4d90d49a2');
INSERT INTO public.configuration_copy VALUES
	(true, NULL, NULL, '', NULL);
INSERT INTO public.configuration_version VALUES
	(true, 'bd7d7abf-84a9-4e8a-b893-82f724f2f247', 17, '083a90d8-9e56-46db-af6d-14ee55da6c04', '2026-11-28 17:40:15.557+00');
INSERT INTO public.delivery VALUES
	('01a2233e-4c6b-8001-99bb-22737754bcf0', 1, 'skipped', 0, '2026-11-28 17:40:15.082+00', '-infinity', NULL),
	('01a2233e-4cfd-8003-8ef7-6d8920b4ec1d', 1, 'skipped', 0, '2026-11-28 17:40:15.228+00', '-infinity', NULL),
	('01a2233e-4d53-8002-b163-0208d654c4e6', 1, 'skipped', 0, '2026-11-28 17:40:15.313+00', '-infinity', NULL),
	('01a2233e-4ecb-8002-8cc7-43883c9ea53e', 1, 'skipped', 0, '2026-11-28 17:40:15.689+00', '-infinity', NULL),
	('01a2233e-4ef0-8000-9448-d68d63e06099', 1, 'skipped', 0, '2026-11-28 17:40:15.726+00', '-infinity', NULL);
INSERT INTO public.dispute VALUES
	('d1ae62ff-eac1-4cfc-9fc0-009418023d94', 1, 'du_1', '01a2233e-4ef9-8003-a7b5-17533d923445', '01a2233e-4ef9-8003-a7b5-17798afe5c08', 'open', 'withdrawn', 100, 'THB', 'fraudulent', NULL, 100, '2026-11-28 17:40:15.751+00', '2026-11-28 17:40:15.751+00');
INSERT INTO public.event VALUES
	('01a2233e-4c6b-8001-99bb-22737754bcf0', '01a2233e-4c2b-8000-89be-2ca8db7812d5', 1, 'payment.completed', '{"type":"payment.completed","timestamp":"2026-11-28T17:40:15.082Z","data":{"payment":{"id":"pay_0355XqC24xGv8LhtRRyyXt","status":"PAID","currency":"THB","amount":"1590.00","payer_uid":"buyer-1","receipt_id":"rcpt_0355XqC8DiElZjisuqNiih","provider":"fake","paid_at":"2026-11-28T17:40:15.082Z","metadata":{"order_id":"A-1"}}}}', '2026-11-28 17:40:15.082+00', NULL),
	('01a2233e-4cfd-8003-8ef7-6d8920b4ec1d', '01a2233e-4cfb-8001-b390-35d679a62ce2', 1, 'payment.cancelled', '{"type":"payment.cancelled","timestamp":"2026-11-28T17:40:15.228Z","data":{"payment":{"id":"pay_0355XqCMM3h46SvxeivZwI","status":"CANCELLED","currency":"THB","amount":"1590.00","payer_uid":"buyer-1","cancelled_at":"2026-11-28T17:40:15.228Z","metadata":{"order_id":"A-1"}}}}', '2026-11-28 17:40:15.228+00', NULL),
	('01a2233e-4d53-8002-b163-0208d654c4e6', '01a2233e-4d2c-8003-ba65-ced09b258fd5', 1, 'payment.completed', '{"type":"payment.completed","timestamp":"2026-11-28T17:40:15.313Z","data":{"payment":{"id":"pay_0355XqCR8CfV1dy1MFKHmX","status":"PAID","currency":"THB","amount":"1590.00","payer_uid":"buyer-1","receipt_id":"rcpt_0355XqCUprlRrwZISP0UOR","provider":"fake","paid_at":"2026-11-28T17:40:15.313Z","metadata":{"order_id":"A-1"}}}}', '2026-11-28 17:40:15.313+00', NULL),
	('01a2233e-4ecb-8002-8cc7-43883c9ea53e', '01a2233e-4e82-8003-a78f-35b8ba8ed190', 1, 'payment.completed', '{"type":"payment.completed","timestamp":"2026-11-28T17:40:15.689Z","data":{"payment":{"id":"pay_0355XqCyTAhFEJy1fR8Qu8","status":"PAID","currency":"THB","amount":"1590.00","payer_uid":"buyer-1","receipt_id":"rcpt_0355XqD5UK3jFILEtDofqP","provider":"fake","paid_at":"2026-11-28T17:40:15.689Z","metadata":{"order_id":"A-1"}}}}', '2026-11-28 17:40:15.689+00', NULL),
	('01a2233e-4ef0-8000-9448-d68d63e06099', '01a2233e-4eda-8000-b00c-c1c4d90d49a2', 1, 'payment.completed', '{"type":"payment.completed","timestamp":"2026-11-28T17:40:15.726Z","data":{"payment":{"id":"pay_0355XqD731TEXQxrUjCI3m","status":"PAID","currency":"THB","amount":"1590.00","payer_uid":"buyer-1","receipt_id":"rcpt_0355XqD95wTFkBA133r462","provider":"fake","paid_at":"2026-11-28T17:40:15.726Z","metadata":{"order_id":"A-1"}}}}', '2026-11-28 17:40:15.726+00', NULL);
INSERT INTO public.event_feed VALUES
	(1, '00000000-0000-0000-0000-000000000000', 0);
INSERT INTO public.figure_mark VALUES
	(true, '2026-11-28 17:00:00+00', '2026-11-28 17:00:00+00');
INSERT INTO public.fraud_rule OVERRIDING SYSTEM VALUE VALUES
	(1, 'PAYER', 2, 'buyer-9', NULL, NULL, 'PAYER_BLOCKED', 'HIGH', 100, true, '2026-11-28 17:40:15.113+00'),
	(2, 'EMAIL', 2, '@spam.example', NULL, NULL, 'SPAM', 'LOW', 10, true, '2026-11-28 17:40:15.531+00');
INSERT INTO public.gateway_call VALUES
	('2026-11-28 17:40:15.078899+00', 'd213f798-3e7f-449c-b0ab-360769a300e9', 1, 'create_session', '01a2233e-4c2b-8000-89be-2ca8db7812d5', '7f36dbbd-234e-a606-5a08-4d270f946c00', NULL, 'answered', '', 0),
	('2026-11-28 17:40:15.22642+00', '3f46e669-abc3-4728-9d2a-5ab7923ac16a', 1, 'create_session', '01a2233e-4ce5-8000-b88d-e430fbce6273', 'cd5f8d0f-c16a-6ae8-60b8-39670f946c00', NULL, 'answered', '', 0),
	('2026-11-28 17:40:15.24843+00', '326323d2-d8ae-45fd-a4f6-280393b1018a', 1, 'create_session', '01a2233e-4cff-8002-8a25-7b15222b44bd', '99940846-b3de-da22-d65a-32270f946c00', NULL, 'answered', '', 0),
	('2026-11-28 17:40:15.30664+00', 'a8a1ab90-f649-4018-8ac4-b1934f47defd', 1, 'create_session', '01a2233e-4d2c-8003-ba65-ced09b258fd5', '7f6fdc0b-8555-aefc-63ca-8d670f946c00', NULL, 'answered', '', 0);
INSERT INTO public.gateway_payout VALUES
	('01a2233e-4d28-8001-a210-47b1b15ec623', 2, 'THB', NULL, 900, 0, 'po_1', '2026-11-28', 'Ada', '2026-11-28 17:40:15.273+00', NULL, NULL, NULL);
INSERT INTO public.hourly_figure VALUES
	('2026-11-28 17:00:00+00', 'currency', 'PAID', 'THB', 1, 1590);
INSERT INTO public.idempotency VALUES
	(1, 'create', '8bd3278a-3026-4499-9c4d-2098f72b3c82', '\xd3f629695f954375a4fcb1bd864abc56', '01a2233e-4c2b-8000-89be-2ca8db7812d5', NULL, '2026-11-28 17:40:15.021+00', NULL, NULL),
	(1, 'create', '58a844d0-b8e8-4aff-8a11-8069c8e730ff', '\xd63d5a3d4d58459ca4519ea872d11972', '01a2233e-4c84-8001-a6de-4e0dc0df7639', NULL, '2026-11-28 17:40:15.109+00', NULL, NULL),
	(1, 'create', '13cc6d88-b562-4443-b7a3-67361028c7c2', '\xd8e54fdf0f894641a52820542e3a400f', '01a2233e-4ce5-8000-b88d-e430fbce6273', NULL, '2026-11-28 17:40:15.208+00', NULL, NULL),
	(1, 'create', 'ca639fd0-29bb-4225-a17e-98e5fb417795', '\x1ba52439c01c40a6b1413cd4901e4837', '01a2233e-4cfb-8001-b390-35d679a62ce2', NULL, '2026-11-28 17:40:15.227+00', NULL, NULL),
	(1, 'create', '6779109a-17bc-4b0b-a0ce-1fd24e740b92', '\xf891d164cd184a519833a4164b79a653', '01a2233e-4cfe-8001-ac7e-7225d2e19a6a', NULL, '2026-11-28 17:40:15.23+00', NULL, NULL),
	(1, 'create', '9c3ca056-96bf-451d-8282-0199d562a20e', '\x1c07671a3e764ac89fa3417a5e6232cf', '01a2233e-4cff-8002-8a25-7b15222b44bd', NULL, '2026-11-28 17:40:15.231+00', NULL, NULL),
	(1, 'create', '865447e4-de41-4ef6-bdd3-c1914db409b8', '\x3df2c030145e41ff9992548bb2c65a53', '01a2233e-4d2c-8003-ba65-ced09b258fd5', NULL, '2026-11-28 17:40:15.282+00', NULL, NULL),
	(1, 'create', 'ef5a879c-8071-409a-99df-4e64e7ae2438', '\xdd084d2c51e147d48a7da7b395506857', '01a2233e-4e82-8003-a78f-35b8ba8ed190', NULL, '2026-11-28 17:40:15.624+00', NULL, NULL),
	(1, 'create', 'c0424845-ab05-4e17-96c4-f17de2addd9f', '\x485e55afe8e34c07a9c9c433a3f9854a', '01a2233e-4eda-8000-b00c-c1c4d90d49a2', NULL, '2026-11-28 17:40:15.706+00', NULL, NULL);
INSERT INTO public.installation VALUES
	(true, '2026-11-28 17:40:14.481+00', '7b6a94bdb117b754', 0, '5d82c745-ba79-4015-89c1-1523d1ae3d5d');
INSERT INTO public.ledger_entry OVERRIDING SYSTEM VALUE VALUES
	('01a2233e-4c6a-8002-bef8-10182d657dfc', 'capture', 'payable', 1, 'gateway_clearing:1', 'merchant_payable:1', 154389, 'THB', NULL, '2026-11-28 17:40:15.082+00', 1),
	('01a2233e-4c6a-8002-bef8-10182d657dfc', 'capture', 'fee', 1, 'gateway_clearing:1', 'fee_income', 4611, 'THB', NULL, '2026-11-28 17:40:15.082+00', 2),
	('01a2233e-4c7d-8001-a868-96783cf1c516', 'refund_reserved', 'whole', 1, 'merchant_payable:1', 'refund_reserve:1', 9000, 'THB', NULL, '2026-11-28 17:40:15.105+00', 3),
	('01a2233e-4c81-8000-8f70-8c9ab88afb6e', 'refund_reserved', 'whole', 1, 'merchant_payable:1', 'refund_reserve:1', 9000, 'THB', NULL, '2026-11-28 17:40:15.108+00', 4),
	('01a2233e-4d11-8000-a221-c731d1397892', 'payout', 'whole', 1, 'merchant_payable:1', 'bank', 100, 'THB', NULL, '2026-11-28 17:40:15.269+00', 5),
	('01a2233e-4d28-8001-a210-47b1b15ec623', 'gateway_payout', 'whole', 2, 'merchant_payable:2', 'gateway_clearing:2', 900, 'THB', NULL, '2026-11-28 17:40:15.273+00', 6),
	('01a2233e-4d52-8000-8597-1414230cec4d', 'capture', 'payable', 1, 'gateway_clearing:1', 'merchant_payable:1', 154389, 'THB', NULL, '2026-11-28 17:40:15.313+00', 7),
	('01a2233e-4d52-8000-8597-1414230cec4d', 'capture', 'fee', 1, 'gateway_clearing:1', 'fee_income', 4611, 'THB', NULL, '2026-11-28 17:40:15.313+00', 8),
	('01a2233e-4d5e-8000-9348-6372a79b421d', 'refund_reserved', 'whole', 1, 'merchant_payable:1', 'refund_reserve:1', 9000, 'THB', NULL, '2026-11-28 17:40:15.337+00', 9),
	('01a2233e-4d69-8000-8436-d3c92673b98d', 'refund_reserved', 'whole', 1, 'merchant_payable:1', 'refund_reserve:1', 9000, 'THB', NULL, '2026-11-28 17:40:15.344+00', 10),
	('01a2233e-4eca-8001-97be-c452c1387c48', 'capture', 'payable', 1, 'gateway_clearing:1', 'merchant_payable:1', 154389, 'THB', NULL, '2026-11-28 17:40:15.689+00', 11),
	('01a2233e-4eca-8001-97be-c452c1387c48', 'capture', 'fee', 1, 'gateway_clearing:1', 'fee_income', 4611, 'THB', NULL, '2026-11-28 17:40:15.689+00', 12),
	('01a2233e-4eef-8003-810b-b71f4c4b82f3', 'capture', 'payable', 1, 'gateway_clearing:1', 'merchant_payable:1', 154389, 'THB', NULL, '2026-11-28 17:40:15.726+00', 13),
	('01a2233e-4eef-8003-810b-b71f4c4b82f3', 'capture', 'fee', 1, 'gateway_clearing:1', 'fee_income', 4611, 'THB', NULL, '2026-11-28 17:40:15.726+00', 14),
	('01a2233e-4ef9-8003-a7b5-17533d923445', 'capture', 'suspense', 1, 'gateway_clearing:1', 'suspense:1', 1, 'THB', NULL, '2026-11-28 17:40:15.736+00', 15);
INSERT INTO public.mail VALUES
	('a0bfa94e-052a-4baf-a1e9-ebba2d9aa919', 'receipt', '01a2233e-4c2b-8000-89be-2ca8db7812d5', NULL, 0, '2026-11-28 17:40:15.751+00', '2026-11-28 17:40:15.751+00');
INSERT INTO public.member VALUES
	('01a2233e-4dfb-8002-a6c0-65431b12b5df', 2, 'ann@example.com', 'developer', 'Ada', '2026-11-28 17:40:15.483+00', NULL);
INSERT INTO public.member_link VALUES
	('01a2233e-4dfb-8002-a6c0-65431b12b5df', '\x3b77bb80713f0ab1405e3586c0cdc4fb19e629cb8b2f0d0dfe14f138e4cbe97c', '2026-12-01 17:40:15.485+00');
INSERT INTO public.merchant OVERRIDING SYSTEM VALUE VALUES
	(1, 'Nimbus Books', NULL, 'NONE', 'US', NULL, NULL, NULL, '{}', '2026-11-28 17:40:14.501+00', 'en', 'ACTIVE', '2026-11-28 17:40:14.501+00', '', '', NULL, NULL, NULL, NULL, '2026-11-28 17:40:14.501+00', false, 'selection', false, NULL, NULL, false, 'UTC', true, NULL, '{}'),
	(2, 'Nimbus Books', 'https://93.184.216.34/hooks', 'NONE', 'US', NULL, NULL, NULL, '{}', '2026-11-28 17:40:14.988+00', 'en', 'NEW', NULL, '', '', NULL, NULL, NULL, NULL, '2026-11-28 17:40:14.988+00', true, 'selection', false, NULL, NULL, false, 'UTC', true, NULL, '{}');
INSERT INTO public.money_case VALUES
	('01a2233e-4cfa-8003-80d6-da03bfb0e3e4', 'ORPHAN_CAPTURE', 1, '01a2233e-4ce5-8000-b88d-e430fbce6273', 'cd5f8d0f-c16a-6ae8-60b8-39670f946c00', NULL, 'DISMISSED', '2026-11-28 17:40:15.226+00', NULL, '2026-11-28 17:40:15.585+00', 'Ada', 'it went back', NULL, NULL),
	('01a2233e-4ef9-8003-a7b5-17798afe5c08', 'DOUBLE_PAYMENT', 1, '01a2233e-4eda-8000-b00c-c1c4d90d49a2', '545faa79-5aa3-d61a-82b6-2f670f946c00', '01a2233e-4ef9-8003-a7b5-17533d923445', 'OPEN', '2026-11-28 17:40:15.736+00', NULL, NULL, NULL, '', NULL, NULL),
	('d1f008f4-0684-4328-ac76-79b540f9ae3c', 'UNKNOWN_REFERENCE', NULL, NULL, NULL, '22849b38-6e16-430c-a635-01f8babea9f2', 'OPEN', '2026-11-28 17:40:15.751+00', '041aaf1f-f5e8-4673-9f07-1c9c44c06383', NULL, NULL, '', NULL, NULL);
INSERT INTO public.operator_identity VALUES
	('01a2233e-4c8b-8003-a0f5-6d73b9a74a9a', 'https://login.example.com', 'u-1', 'oidc:grace@example.com/3f0c9a1b7d2e', 'viewer', '2026-11-28 17:40:15.116+00', '2026-11-28 17:40:15.116+00', '2026-11-30 05:40:15.116+00', NULL);
INSERT INTO public.operator_token VALUES
	('u5O00Oyh', 'Ada', '\x5cbcfe4ec88806a8dfd0c3e609f545260a0bdee6366b29256623a4fbd23318f4', '2026-11-28 17:40:14.965+00', NULL, 'admin', '2027-02-26 17:40:14.965+00', NULL),
	('P7j16uoL', 'Alan', '\xc27cc3f50c316d7082dc89b5db9ae07f5925f80d18cf2a31f3fcc563048fa3ba', '2026-11-28 17:40:14.971+00', NULL, 'admin', '2027-02-26 17:40:14.971+00', NULL),
	('DCkQMXJU', 'Bob', '\x04cbbbabe32129db525cfc07695f6cbc2da6bf535ce896af0e5a28b79c788542', '2026-11-28 17:40:14.981+00', NULL, 'admin', '2027-02-26 17:40:14.981+00', NULL),
	('CEQiVkfa', 'Eve', '\x37de29731a6545aaed6f4a5d39f33d604c35ed102a46d8aa9d6447d08d00d3aa', '2026-11-28 17:40:14.982+00', NULL, 'admin', '2027-02-26 17:40:14.982+00', NULL);
INSERT INTO public.payment VALUES
	('01a2233e-4c2b-8000-89be-2ca8db7812d5', 1, 'cs_vFLJzSAzaBDs6DNd', 'PAID', 3, 'THB', 1590.000000000000000000, '1590.00', 'buyer-1', NULL, true, '{"order_id":"A-1"}', 'NONE', '7f36dbbd-234e-a606-5a08-4d270f946c00', '01a2233e-4c6a-8002-bef8-10ccb5aa2a8b', NULL, 0.000000000000000000, '2026-11-28 18:10:15.021+00', '2026-11-28 17:40:15.082+00', NULL, NULL, NULL, '2026-11-28 17:40:15.021+00', '2026-11-28 17:40:15.082+00', 180.000000000000000000),
	('01a2233e-4c84-8001-a6de-4e0dc0df7639', 1, 'cs_pl95pGU8N5AqnevZ', 'CANCELLED', 1, 'THB', 1590.000000000000000000, '1590.00', 'buyer-6', NULL, true, '{"order_id":"A-1"}', 'NONE', NULL, NULL, NULL, 0.000000000000000000, '2026-11-28 18:10:15.109+00', NULL, NULL, NULL, '2026-11-28 17:40:15.109+00', '2026-11-28 17:40:15.109+00', '2026-11-28 17:40:15.109+00', 0.000000000000000000),
	('01a2233e-4ce5-8000-b88d-e430fbce6273', 1, 'cs_5czj4Couk94OPX6J', 'PROCESSING', 2, 'THB', 1590.000000000000000000, '1590.00', 'buyer-1', NULL, true, '{"order_id":"A-1"}', 'NONE', 'cd5f8d0f-c16a-6ae8-60b8-39670f946c00', NULL, NULL, 0.000000000000000000, '2026-11-28 18:10:15.208+00', NULL, NULL, NULL, NULL, '2026-11-28 17:40:15.208+00', '2026-11-28 17:40:15.218+00', 0.000000000000000000),
	('01a2233e-4cfb-8001-b390-35d679a62ce2', 1, 'cs_CSAFnj3l7B4pi3ob', 'CANCELLED', 2, 'THB', 1590.000000000000000000, '1590.00', 'buyer-1', NULL, true, '{"order_id":"A-1"}', 'NONE', NULL, NULL, NULL, 0.000000000000000000, '2026-11-28 18:10:15.227+00', NULL, NULL, NULL, '2026-11-28 17:40:15.228+00', '2026-11-28 17:40:15.227+00', '2026-11-28 17:40:15.228+00', 0.000000000000000000),
	('01a2233e-4cfe-8001-ac7e-7225d2e19a6a', 1, 'cs_rPGWU88GCa5wz9Ex', 'PENDING', 1, 'THB', 1590.000000000000000000, '1590.00', 'buyer-1', NULL, true, '{"order_id":"A-1"}', 'NONE', NULL, NULL, NULL, 0.000000000000000000, '2026-11-28 18:10:15.23+00', NULL, NULL, NULL, NULL, '2026-11-28 17:40:15.23+00', '2026-11-28 17:40:15.23+00', 0.000000000000000000),
	('01a2233e-4cff-8002-8a25-7b15222b44bd', 1, 'cs_Lv4lR7IozFm3w8dg', 'PROCESSING', 2, 'THB', 1590.000000000000000000, '1590.00', 'buyer-1', NULL, true, '{"order_id":"A-1"}', 'NONE', '99940846-b3de-da22-d65a-32270f946c00', NULL, NULL, 0.000000000000000000, '2026-11-28 17:40:15.246+00', NULL, NULL, NULL, NULL, '2026-11-28 17:40:15.231+00', '2026-11-28 17:40:15.24+00', 0.000000000000000000),
	('01a2233e-4d2c-8003-ba65-ced09b258fd5', 1, 'cs_fJjHJI6WbDCg7FDC', 'PAID', 3, 'THB', 1590.000000000000000000, '1590.00', 'buyer-1', NULL, true, '{"order_id":"A-1"}', 'NONE', '7f6fdc0b-8555-aefc-63ca-8d670f946c00', '01a2233e-4d52-8000-8597-149e99330573', NULL, 0.000000000000000000, '2026-11-28 18:10:15.282+00', '2026-11-28 17:40:15.313+00', NULL, NULL, NULL, '2026-11-28 17:40:15.282+00', '2026-11-28 17:40:15.313+00', 180.000000000000000000),
	('01a2233e-4e82-8003-a78f-35b8ba8ed190', 1, 'cs_Uvv2m2PTQ4UXBqjV', 'PAID', 3, 'THB', 1590.000000000000000000, '1590.00', 'buyer-1', 'buyer@example.com', true, '{"order_id":"A-1"}', 'NONE', '542ff2ee-ab79-61cf-c2f8-3a270f946c00', '01a2233e-4eca-8001-97be-c58cfb61bfb5', NULL, 0.000000000000000000, '2026-11-28 18:10:15.624+00', '2026-11-28 17:40:15.689+00', NULL, NULL, NULL, '2026-11-28 17:40:15.624+00', '2026-11-28 17:40:15.689+00', 0.000000000000000000),
	('01a2233e-4eda-8000-b00c-c1c4d90d49a2', 1, 'cs_pmXifPJrDv5eZEBl', 'PAID', 3, 'THB', 1590.000000000000000000, '1590.00', 'buyer-1', 'buyer@example.com', true, '{"order_id":"A-1"}', 'NONE', '545faa79-5aa3-d61a-82b6-2f670f946c00', '01a2233e-4eef-8003-810b-b7a928f60cee', NULL, 0.000000000000000000, '2026-11-28 18:10:15.706+00', '2026-11-28 17:40:15.726+00', NULL, NULL, NULL, '2026-11-28 17:40:15.706+00', '2026-11-28 17:40:15.726+00', 0.000000000000000000);
INSERT INTO public.payment_method OVERRIDING SYSTEM VALUE VALUES
	(1, 1, 1, 'card', 'Card', '{USD,THB,JPY,TWD,IDR,PHP}', NULL, NULL, NULL, 'INCLUSIVE', 0.02900000, 0, true, '2026-11-28 17:40:14.511+00', true, '{}'),
	(2, 1, 1, 'redirect', 'Transfer', '{USD,THB,JPY,TWD,IDR,PHP}', NULL, NULL, NULL, 'INCLUSIVE', 0.02900000, 1, true, '2026-11-28 17:40:14.512+00', true, '{}'),
	(3, 2, 2, 'card', 'Card', '{THB,JPY}', NULL, NULL, NULL, 'INCLUSIVE', 0.00000000, 0, true, '2026-11-28 17:40:15.013+00', true, '{}');
INSERT INTO public.payout VALUES
	('01a2233e-4d11-8000-a221-c731d1397892', 1, 'THB', NULL, 100, 'transfer 1', '2026-11-28', 'Ada', '2026-11-28 17:40:15.254+00', NULL, NULL, NULL);
INSERT INTO public.proposal VALUES
	('01a2233e-4c16-8002-be52-20e02a0f2742', 'account.add', 2, NULL, '{"a new account at fake, of merchant 2: https://gateway.example.com","it takes payments in every country of its gateway","its signing_secret becomes another secret"}', 'Ada', 'ticket 7', '2026-11-28 17:40:14.999+00', '2026-11-29 17:40:14.999+00', 'APPROVED', 'Alan', '2026-11-28 17:40:15.008+00', ''),
	('01a2233e-4ca0-8003-96dc-f89354a9d89d', 'chain.set', NULL, '\x04746573749862ea50212f2bd72e4a9801740803fcc48513c616a3dd45a21fc4499482f0218d002d661ad6ee2e766d357304b23885a8ecc134b41ca55f8dfc34c138f845d9b05a2b4b88294ba3c576b3a842f317d8cfe5a74ed7939c39b72895c243acfc112636699d18b3bfc1fdcf618c41a9efa179f629b5f96b073cd7c3cdfd289f79ab3d62da7c1b79b7989988288a91f87cc94c70999643da9c9951c8181f50f8c8d0e85697daa73e77922d86c0f8320449fcd86ac8c7d29227bee079aef0915f5d719cedfce545de444aabb0e2cb54a9d2629e94a83cff4090929b6ce4cb', '{"refund_approval_above of native becomes 101; it is 1000"}', 'Bob', 'ticket 7', '2026-11-28 17:40:15.137+00', '2026-11-29 17:40:15.137+00', 'WAITING', NULL, NULL, ''),
	('01a2233e-4ca6-8002-a18c-283336a57f77', 'chain.set', NULL, '\x0474657374a2b941a61e8b64435271a59ffbcce34748d659b78b86fe5baba495d4e1483e9cf11f7b4a315ec888206fb3f5395a5773b2c57935cd71fba3e8c9c1efa1674e931e741d905cbbe4e3347c0eb080357015bd6c2d0ab44e0986a1f0371002feda7434298be9490611bac989376b88a6505e1851ae80839cebb2ab48c8e123d677df356ad9d9b0b1483be8da43c3caa20d141d9f488c76c0161515da4da1aca1386f2d2e644c7c45c6e63e00afc5dd9659d75a6e0fde211693ca6dc12091dfdee686d8ca92d47d22dfd0898bc43cab90da227f80c243322937b8f430c272', '{"refund_approval_above of native becomes 102; it is 1000"}', 'Bob', 'ticket 7', '2026-11-28 17:40:15.142+00', '2026-11-29 17:40:15.142+00', 'WAITING', NULL, NULL, ''),
	('01a2233e-4cc8-8002-b8fe-26a2736f6ad4', 'chain.add-contract', NULL, NULL, '{"payments of the platform on bsc go through the contract 0xfb6916095ca1df60bb79ce92ce3ea74c37c5d359","and from there to 0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed"}', 'Ada', 'ticket 7', '2026-11-28 17:40:15.177+00', '2026-11-29 17:40:15.177+00', 'APPROVED', 'Alan', '2026-11-28 17:40:15.2+00', ''),
	('01a2233e-4e0c-8000-8372-99bc2cc519a4', 'tax.set', NULL, NULL, '{"the tax rate of TH becomes 0.07; it is 0"}', 'Ada', 'ticket 7', '2026-11-28 17:40:15.501+00', '2026-11-29 17:40:15.501+00', 'APPROVED', 'Alan', '2026-11-28 17:40:15.513+00', ''),
	('01a2233e-4e3d-8001-b1b5-714681d52b9d', 'chain.set', NULL, NULL, '{"finality of native becomes confirmations; it is confirmations","confirmations of native becomes 12; it is None","instant_finality of native becomes False; it is False","public_rpc_urls of native becomes [''https://rpc.example.com'']; it is []","explorer_urls of native becomes [''https://explorer.example.com'']; it is []","auto_refund_gas of native becomes 2000000; it is 3000000"}', 'Ada', 'ticket 7', '2026-11-28 17:40:15.549+00', '2026-11-29 17:40:15.549+00', 'APPROVED', 'Alan', '2026-11-28 17:40:15.557+00', '');
INSERT INTO public.provider VALUES
	('simulator', 'simulator', true, '2026-11-28 17:40:14.077+00'),
	('stripe', 'stripe', true, '2026-11-28 17:40:14.077+00'),
	('ecpay', 'ecpay', true, '2026-11-28 17:40:14.077+00'),
	('2c2p', '2c2p', true, '2026-11-28 17:40:14.077+00'),
	('gateway_contract', 'gateway_contract', true, '2026-11-28 17:40:14.077+00'),
	('fake', 'fake', true, '2026-11-28 17:40:14.49+00');
INSERT INTO public.provider_account OVERRIDING SYSTEM VALUE VALUES
	(1, 'fake', NULL, 'http://gateway.test', '\x0474657374c4160ba659b66066e72b8d15a8634cdfb2dbf67e4fd1f5f63f8cc8ae3f1cf6586f5ac20a83104a5453520b19508d33ce7f56ca9311d102223be61e491751da0494acafa2', true, '2026-11-28 17:40:14.49+00', '', '2026-11-28 17:40:14.49+00', NULL, true),
	(2, 'fake', 2, 'https://gateway.example.com', '\x0474657374151f4bebb289a8ade229a2fa59dac04a946b8315d89dd4444b4c6c536cb65ae2cf107ef09d0bbe4296e1c9d13667e396dead5f5b83957406de1f3199c05601161bb6639d5e0774c0a434fcfc', true, '2026-11-28 17:40:15.003+00', '', '2026-11-28 17:40:15.003+00', NULL, true),
	(3, 'gateway_contract', NULL, 'evm:bsc', '\x0474657374c18cc71c39b4f1de3d98749a6b359beed67aa7a2ecbd2d37af3544c93b59e66dff511118c4d2261c2c7b352a4d94b3579af953a2843627dfd796993604', true, '2026-11-28 17:40:15.194+00', '', '2026-11-28 17:40:15.194+00', NULL, true);
INSERT INTO public.rate_limit VALUES
	(2, 'create', 5, 7);
INSERT INTO public.reconciliation_blocks VALUES
	('d991dbef-b6af-4b0f-9872-7047a759d607', 3, 1, 9, 5, 0, 0, NULL);
INSERT INTO public.reconciliation_run VALUES
	('01a2233e-4c86-8001-a573-7afb089b6af3', 2, 'folder', 'a.csv', '00', 'failed', 1, '2026-11-28 17:40:15.11+00', 'line 2: no', NULL, NULL, 0, '2026-11-28 17:40:15.11+00', '2026-11-28 17:40:15.11+00'),
	('d991dbef-b6af-4b0f-9872-7047a759d607', 3, 'chain', 'blocks 1 to 9', '01', 'running', 1, '2026-11-28 17:40:15.751+00', '', NULL, NULL, 0, '2026-11-28 17:40:15.751+00', NULL);
INSERT INTO public.refund VALUES
	('01a2233e-4c7d-8001-a868-96783cf1c516', 1, '01a2233e-4c2b-8000-89be-2ca8db7812d5', '01a2233e-4c6a-8002-bef8-10182d657dfc', NULL, 90.000000000000000000, '90.00', 'THB', 9000, 'a book was missing', NULL, 'PENDING', NULL, 'approval', NULL, 'merchant:1', NULL, '', 0, NULL, NULL, '2026-11-28 17:40:15.093+00', '2026-11-28 17:40:15.093+00'),
	('01a2233e-4c81-8000-8f70-8c9ab88afb6e', 1, '01a2233e-4c2b-8000-89be-2ca8db7812d5', '01a2233e-4c6a-8002-bef8-10182d657dfc', NULL, 90.000000000000000000, '90.00', 'THB', 9000, 'a book was missing', NULL, 'PENDING', NULL, 'approval', NULL, 'merchant:1', NULL, '', 0, NULL, NULL, '2026-11-28 17:40:15.093+00', '2026-11-28 17:40:15.093+00'),
	('01a2233e-4d69-8000-8436-d3c92673b98d', 1, '01a2233e-4d2c-8003-ba65-ced09b258fd5', '01a2233e-4d52-8000-8597-1414230cec4d', NULL, 90.000000000000000000, '90.00', 'THB', 9000, 'a book was missing', NULL, 'PENDING', NULL, 'approval', NULL, 'merchant:1', NULL, '', 0, NULL, NULL, '2026-11-28 17:40:15.325+00', '2026-11-28 17:40:15.325+00'),
	('01a2233e-4d5e-8000-9348-6372a79b421d', 1, '01a2233e-4d2c-8003-ba65-ced09b258fd5', '01a2233e-4d52-8000-8597-1414230cec4d', NULL, 90.000000000000000000, '90.00', 'THB', 9000, 'a book was missing', NULL, 'PENDING', NULL, 'queued', NULL, 'merchant:1', NULL, '', 0, NULL, NULL, '2026-11-28 17:40:15.325+00', '2026-11-28 17:40:15.325+00');
INSERT INTO public.restriction VALUES
	('ONRAMP', 'KR', true, '2026-11-28 17:40:14.077+00'),
	('CRYPTO', 'CU', true, '2026-11-28 17:40:15.515+00');
INSERT INTO public.ring_key VALUES
	('test', '7b6a94bdb117b754', '2026-11-28 17:40:14.483+00', NULL);
INSERT INTO public.schema_migration VALUES
	(1, '0001_core', 'f5a4d65679f400024b3c7079d61f893545aa5de8475ae1277a9722acb5b1d401', '2026-11-28 17:40:14.046584+00'),
	(2, '0002_operation', '3348ec9017ebc42c05a205933ad915aef44b3ec9c61d81a5b5d76158e0e138bb', '2026-11-28 17:40:14.07752+00'),
	(3, '0003_onchain', '80cb3c7b3768e60d25c6c5ff312acc9e05db1678db6c291cd3921115b0815425', '2026-11-28 17:40:14.098426+00'),
	(4, '0004_refunds', '9b3246568d21249f5a9327bd7d497d7a23443d2a32d6eb527028e3d794430266', '2026-11-28 17:40:14.126396+00'),
	(6, '0006_operators', '0827c5fb01e671e256302232d6e851d66f7da3cca91df1517a864c2b175db627', '2026-11-28 17:40:14.148727+00'),
	(7, '0007_watched', '2d180ddef872ad7b9926a93390b519f97aaa6855a287fbe115ad0cea72a11f4d', '2026-11-28 17:40:14.153125+00'),
	(8, '0008_unknown_captures', '9e1232b506cbc5dc8bcb0365bbc7e886421b500bca3dd88efb9f4df34df41d38', '2026-11-28 17:40:14.153841+00'),
	(9, '0009_expiry', 'a002538e9b2081090e7bd0febd9773a9b454fbb13694853568f1c1889d405fa4', '2026-11-28 17:40:14.159281+00'),
	(10, '0010_catalog_shown', '88ade1e491ecc14e151b9905125b96fd26e3fe4c10e7f2da5f1b8057fe524530', '2026-11-28 17:40:14.160215+00'),
	(17, '0017_frozen_tokens', 'fb2fbd87fd3c2fd6e17409f914357371d88742aa0d4f13d554d03e2afe355d60', '2026-11-28 17:40:14.162768+00'),
	(18, '0018_unknown_captures_valid', 'fe583bab17a825e5a275d0d1c3d08c351ca5027657fe95925f63625ced41a3ca', '2026-11-28 17:40:14.164152+00'),
	(19, '0019_expiry_valid', 'bc70a1da2b45082688a43161ffc4901762dbb871689b764362ae1f4a8202859c', '2026-11-28 17:40:14.165518+00'),
	(20, '0020_tax_country', '7abe2ef85e6dea2ca2f316f8f3adcedb6b1ffd545605276c782e81862b08b90b', '2026-11-28 17:40:14.166238+00'),
	(28, '0028_buyer_calls', '7cbc6e3029e5450ea1a4ac09c052478a56a48c605f14ce39dbce7f7cb2b021d8', '2026-11-28 17:40:14.16788+00'),
	(29, '0029_disputes', 'e66b1e874c1759581dc44c7003031121272d9533c05477a267fd8bc0b7cf3ec3', '2026-11-28 17:40:14.170711+00'),
	(38, '0038_callback_bodies', 'e2632a5d11893dbf52cbebec9c42d521cae36f7cd833ad68841f82c35d1f4c89', '2026-11-28 17:40:14.174714+00'),
	(39, '0039_disputes_valid', '0f4569d5a583f064ba9d7432c8cfde45c8c94abd24db0b1c6051b10d5b06e553', '2026-11-28 17:40:14.175637+00'),
	(49, '0049_auto_refund_default', '3090c8e7b47be2c0b93064b1dcc30752ec9b0852ef6d0b7082159af744f7de29', '2026-11-28 17:40:14.176126+00'),
	(59, '0059_merchant_cases', '49156ee02f0a51da80bd321c9e8a290e46ffe3c7cf08e4a749706b07282dc500', '2026-11-28 17:40:14.176841+00'),
	(69, '0069_callback_https', '902f38e6224ed250f19a76f5a55c643a55a10b72473c5755f65e18319e5258c9', '2026-11-28 17:40:14.17746+00'),
	(78, '0078_account_countries', 'a3972d65183042f24f283f28b2165e906667aa3c48c8c784560eba0310a8face', '2026-11-28 17:40:14.178303+00'),
	(80, '0080_last_use_and_attempt_url', '4e09af09d1a76316264193ff50072c59c77065341ad3b946804ae0a990271b6d', '2026-11-28 17:40:14.178789+00'),
	(81, '0081_search_indexes', 'fbfc5ece583773e70437f218bb3335ef7e1586aabc5a8299e79012af8e6070ff', '2026-11-28 17:40:14.185713+00'),
	(88, '0088_configuration_version', 'be5891f814ff137cf4cd29b383fd337e146d3e5b2efa14a96da9e3a63b3783f9', '2026-11-28 17:40:14.186354+00'),
	(89, '0089_console_sessions', '741ff65ee955f7f8de3819d10eab52f031aaaf59dd09960c6fcbd0f3cd1a5020', '2026-11-28 17:40:14.188667+00'),
	(92, '0092_merchant_face', 'afbfd4e9400b0885b33f8c06c7dbe0bd14897303cab764c3e444d5d0083c455b', '2026-11-28 17:40:14.19129+00'),
	(95, '0095_merchant_portal', '38710c580ec2be0094b64eaff167c5bf8c09dc770e9fce50e4158c0cd5e3d697', '2026-11-28 17:40:14.193388+00'),
	(96, '0096_merchant_refunds', 'bf0b5c3430a07f5c1809cea2009dc4cb6446bac5d3480c88a2b4dd5743a82e71', '2026-11-28 17:40:14.203864+00'),
	(120, '0120_order_number_index', 'b5213f0a62852c3f1348719fce24056e95eb991cf9d068450c9e28940f9ac7c2', '2026-11-28 17:40:14.207232+00'),
	(125, '0125_hourly_figures', '2f3d326dfd9b04523ee7218dbdcbf3568771e251c216b81a7e9e5aa8b5d1ec07', '2026-11-28 17:40:14.207429+00'),
	(126, '0126_ended_payments', '98934c861bcd464ec75718f264f281eb422b3c6289ba9bb08564f1319d66df53', '2026-11-28 17:40:14.215023+00'),
	(127, '0127_outage_detail', '6b9a04f1b7d3879212653040409f686c14cc43c722618cf2acabdc1920d15b7d', '2026-11-28 17:40:14.215128+00'),
	(128, '0128_console_indexes', '8039dcf1591f674f19e9bfaede7137c97f82b13d4a0a2a758672b81ee899a96e', '2026-11-28 17:40:14.218604+00'),
	(134, '0134_operator_identities', '27abe67c5d7836ba85798dcb131857a92c9b85fc5bacfc753dc4f66dc51398f7', '2026-11-28 17:40:14.218706+00'),
	(135, '0135_mail', 'eb3bacb9074046874a15537cee07d1817af0c2a71e8256e1187b011f1f06a944', '2026-11-28 17:40:14.222909+00'),
	(136, '0136_gateway_calls', 'c8565e6b75e53808648bea746e28bcaec77c04c76306be2ffc357aeab49d0e83', '2026-11-28 17:40:14.229233+00'),
	(142, '0142_search_indexes', '808010a7f169a8f8810521e1acef35b0efea2a6a00df581155a571c67ca358af', '2026-11-28 17:40:14.233978+00'),
	(143, '0143_event_feed', 'df7c4298b9866ee7990fa78d568b223fca2bd719d39af0738127660b71615639', '2026-11-28 17:40:14.234086+00'),
	(144, '0144_event_feed_indexes', '57ab4ac544c9883f4ce12e0c7ab8aadaa7408c4ec1ab9a74f0aa407837a5efc0', '2026-11-28 17:40:14.237252+00'),
	(145, '0145_ledger', 'f4c6626e3c76be18e0fee94d3a2d3936d89bb96974508054271cd056a008f5f7', '2026-11-28 17:40:14.239452+00'),
	(146, '0146_payout', 'cb758a878cd650d9e116fb7d60da6b4e6a27669848f93f207f2712c6e9e546d5', '2026-11-28 17:40:14.242661+00'),
	(147, '0147_ledger_of_merchants', 'e5bd51bd578c82b8e3c50768d3d6f51c40934121e00670b49d33d03ec19a3d36', '2026-11-28 17:40:14.246554+00'),
	(148, '0148_statement', 'de585bf3f17b7961e1b3f74dae4c9c775fb41af7bf695db8eb1c0fbda71fb9b1', '2026-11-28 17:40:14.246716+00'),
	(149, '0149_statement_close_forward', '5760dc6fd176d94a043857769c1a1f0d37053510aa01601bf7f11c281e7a153c', '2026-11-28 17:40:14.251566+00'),
	(151, '0151_test_mode', 'f20612dbc3dfe1b6ef518af01a8e2d4883d9e9da977bbf8e6a4a431583123f11', '2026-11-28 17:40:14.252078+00'),
	(152, '0152_test_mode_valid', '94c8c4f003b48c2035e22fdc3a9f9113756d459b467dcb4bf6f817b13e014b20', '2026-11-28 17:40:14.258291+00'),
	(153, '0153_test_clock', '2a438e1d10532d00e09d53716c8a7c9d162ee9b6dee36cf7f7e7b17cd85b1976', '2026-11-28 17:40:14.258413+00'),
	(161, '0161_endpoint_outage', 'b1f1630d08d4ff43f3f89350df3f76f7d19b58012605574f1541535ac468f5bb', '2026-11-28 17:40:14.259721+00'),
	(162, '0162_gateway_payout', 'a8a0ef0d328cacb1e0feac1ae42d9de4d23c1fe0213ba92eeb18bf9df4778252', '2026-11-28 17:40:14.261298+00'),
	(165, '0165_reconciliation_run', 'c3624d185eba189639b283436f4ead97b0f51eda47ff2bc244231076cb45460b', '2026-11-28 17:40:14.263382+00'),
	(168, '0168_payer_address', '4824695b13d697a6bae96e952b6594bfc21e201878b5c1915f3b26cccde33c7d', '2026-11-28 17:40:14.268295+00'),
	(169, '0169_retention_indexes', '3260dafb1f7b273bb1eda6f3e27360e6b61811cdf59946adde0cca94dd51be5d', '2026-11-28 17:40:14.270534+00'),
	(172, '0172_test_gateway', 'beab3c9b863285168e034793948fcaeeeccbc7b13597b26c63b89fab81355660', '2026-11-28 17:40:14.270646+00'),
	(173, '0173_test_gateway_valid', '755beeed127beda03b02ef8888b3219c84550dd9e3d9a42c2095c96e074ea677', '2026-11-28 17:40:14.274019+00'),
	(176, '0176_reconciliation_s3', '2a9954bed3a65de95605f8477e8566bed6eb25ff884366604628209ffb69797f', '2026-11-28 17:40:14.274124+00'),
	(177, '0177_payer_erasure', 'cc61e764a642b5c02900eba6685ef76f21045770d84a712b3243272916589457', '2026-11-28 17:40:14.274769+00'),
	(186, '0186_payer_sealing', 'b25b2a07616c8dea4e83b4638b126fc93ac475129089f56f982bd3d519fd4059', '2026-11-28 17:40:14.278651+00'),
	(187, '0187_reconciliation_chain', '1efc15c707ad793b2b0497f955cda7e7e99f986c7ae3e54c0e245fca4b5d73e2', '2026-11-28 17:40:14.278758+00'),
	(188, '0188_reconciliation_chain_indexes', 'f87c8d77da66ab98b25d5688de3ab3ab8e3fae2100955c934f607d515c7e0581', '2026-11-28 17:40:14.282909+00'),
	(189, '0189_reconciliation_payouts', '806d95c87defeedab7c9ebea901e1313949fdb3f32724baaeff292312bbb9483', '2026-11-28 17:40:14.283009+00'),
	(190, '0190_reconciliation_disputes', '5aafcc851bb19bfaabff1d36de5815f82ba271b6571a7b2ee4ca3ce8f2760f0f', '2026-11-28 17:40:14.283641+00'),
	(191, '0191_dispute_reinstated', '805bf17005df8498fd2c3d7a362736c8eafe68896653e358a5db339e0296e023', '2026-11-28 17:40:14.284844+00'),
	(192, '0192_payment_payer', '3f057c3dd76a39b56e5af7d8a08ca6acf2a70208a9ca70062c1877b35df34385', '2026-11-28 17:40:14.288404+00'),
	(200, '0200_cell', '7819192488e87128f1d7b98056dc82695d42892852d39a7ee4f255d0316ceb7f', '2026-11-28 17:40:14.288577+00'),
	(205, '0205_copied_tables', '51118874535a0f268bdbee3420bed47fa0efcd16847d3e5b4d91544cc8714cfe', '2026-11-28 17:40:14.295628+00'),
	(206, '0206_copy_rows', '0725682c045cefc6e448fe4458568b687da1d5200d44267184f5aae5968949ee', '2026-11-28 17:40:14.306785+00'),
	(207, '0207_trigger_values', '2f02feee83c80ec2752f009ef9c1481a80b4eb054e94ea6702aefbfdbdc2dc59', '2026-11-28 17:40:14.307846+00'),
	(211, '0211_reconciliation_cell_away', 'c7ea35cd2bb6fd99231b313141f11b576557ea0750e3c7a615ac35c7b310995a', '2026-11-28 17:40:14.308547+00'),
	(212, '0212_cell_transfer', 'e9e6fed13247a9de84dac18a279a60e51a395fefe74302b5a58d8331c87d1d74', '2026-11-28 17:40:14.309097+00'),
	(213, '0213_cell_transfer_valid', '32201c2b0e0c719c75d0580810bf2e7b3fb53b280da9345a9de73b1901491730', '2026-11-28 17:40:14.312882+00'),
	(218, '0218_merchant_moves', '8651f7c2cc94c3cf776c0f0b8fff948c7b254fe228c646ba5cc00a8dbbc72678', '2026-11-28 17:40:14.312984+00'),
	(219, '0219_cell_process', '4f30884afe7182b78945d305c087369d73519dc9d42d24008e93f2a1903f7f8f', '2026-11-28 17:40:14.314256+00'),
	(220, '0220_take_back', 'f3b3c4816959a9eacf1c554f800c4280145e2e598f85e8f5e7ac4c29fbaaa04b', '2026-11-28 17:40:14.315442+00'),
	(230, '0230_left_empty', '09e659817f0f5e89bc697b937055898cc453b6fef0b06a7d9a1ee7e97884cf94', '2026-11-28 17:40:14.316796+00'),
	(231, '0231_accounts_of_merchants', '61f0ed66aafff5a5ff24659696bbd20fd8d2c9529c60ddda79f356a8804d63ff', '2026-11-28 17:40:14.318084+00'),
	(232, '0232_unique_at_commit', '29eeb8273590329b39a845aa0dc3324265e23a16877d6a83907db34740cc38cd', '2026-11-28 17:40:14.318176+00'),
	(233, '0233_refunds_by_status', '67d2f38c3b6b793704a8be9667205b2deb659e8df64b903c89ed2c28fb94ad02', '2026-11-28 17:40:14.319797+00'),
	(236, '0236_tor_can_be_restricted', '1a93ea1d813578e6b8aa9402ccb2f5221d6613cce28d0a27ea4f719540fb0f98', '2026-11-28 17:40:14.319891+00'),
	(237, '0237_tor_can_be_restricted_valid', '2d0c9020365090f2f16a1d9ddb20a579bad385cfa2106f7085e98565ca4ff88d', '2026-11-28 17:40:14.32091+00'),
	(238, '0238_bounds_of_automatic_refunds', 'fa931703b0c5ed14eb135d9bd7c5e9c889f776061a46afd264a55a9fb0f5525e', '2026-11-28 17:40:14.321011+00'),
	(239, '0239_refund_thresholds_of_merchants', '07f15a56e3d5614411f535cef78a4061cb9af6769ab87814ad900bff8fd2af51', '2026-11-28 17:40:14.326454+00'),
	(246, '0246_outside_refunds', '708e6e8ced974c17e8e13c2594d2e97279e156791ea6710231568ae85ffcec1e', '2026-11-28 17:40:14.327638+00'),
	(247, '0247_outside_refunds_valid', '4faf1d47f9cf3236b2c18e6b936c5a952975cbd431f46218eb410930d28bfece', '2026-11-28 17:40:14.329727+00'),
	(248, '0248_method_limits', '269ebe692de45fb193e813a5fc9c4e235b1ce96bf532c251c15513d467070125', '2026-11-28 17:40:14.33014+00'),
	(249, '0249_forms_are_shown_once', '5f0f32dbec5e20f5939a4b1a1b239028995c2a4ea7c566b5403b8f468850afb2', '2026-11-28 17:40:14.332129+00');
INSERT INTO public.session VALUES
	('7f36dbbd-234e-a606-5a08-4d270f946c00', '01a2233e-4c2b-8000-89be-2ca8db7812d5', 1, 1, 'fake', 'ended', 'captured', 'card', 'Card', 'TH', NULL, NULL, 'THB', '1590.00', 'INCLUSIVE', '0.029', '46.11', '0', '1590.00', 159000, NULL, 'ref-7f36dbbd-234e-a606-5a08-4d270f946c00', '{"type":"redirect","redirect":{"url":"http://gateway.test/pay","method":"GET","fields":{}}}', NULL, 0, '2026-11-28 17:40:15.057+00', NULL, '2026-11-28 17:40:15.082+00', 'fake', NULL, 0, NULL, NULL, NULL, 1, NULL, NULL),
	('cd5f8d0f-c16a-6ae8-60b8-39670f946c00', '01a2233e-4ce5-8000-b88d-e430fbce6273', 1, 1, 'fake', 'open', NULL, 'card', 'Card', 'TH', NULL, NULL, 'THB', '1590.00', 'INCLUSIVE', '0.029', '46.11', '0', '1590.00', 159000, NULL, 'ref-cd5f8d0f-c16a-6ae8-60b8-39670f946c00', '{"type":"redirect","redirect":{"url":"http://gateway.test/pay","method":"GET","fields":{}}}', '2026-11-28 17:40:45.214+00', 0, '2026-11-28 17:40:15.214+00', NULL, NULL, 'fake', NULL, 0, NULL, NULL, NULL, 1, NULL, NULL),
	('99940846-b3de-da22-d65a-32270f946c00', '01a2233e-4cff-8002-8a25-7b15222b44bd', 1, 1, 'fake', 'open', NULL, 'card', 'Card', 'TH', 'bsc', 'USDT', 'THB', '1590.00', 'INCLUSIVE', '0.029', '46.11', '0', '1590.00', 159000, NULL, 'ref-99940846-b3de-da22-d65a-32270f946c00', '{"type":"redirect","redirect":{"url":"http://gateway.test/pay","method":"GET","fields":{}}}', '2026-11-28 17:40:45.238+00', 0, '2026-11-28 17:40:15.238+00', NULL, NULL, 'fake', NULL, 0, NULL, NULL, NULL, 1, NULL, NULL),
	('7f6fdc0b-8555-aefc-63ca-8d670f946c00', '01a2233e-4d2c-8003-ba65-ced09b258fd5', 1, 1, 'fake', 'ended', 'captured', 'card', 'Card', 'TH', NULL, NULL, 'THB', '1590.00', 'INCLUSIVE', '0.029', '46.11', '0', '1590.00', 159000, NULL, 'ref-7f6fdc0b-8555-aefc-63ca-8d670f946c00', '{"type":"redirect","redirect":{"url":"http://gateway.test/pay","method":"GET","fields":{}}}', NULL, 0, '2026-11-28 17:40:15.292+00', NULL, '2026-11-28 17:40:15.313+00', 'fake', NULL, 0, NULL, NULL, NULL, 1, NULL, NULL),
	('542ff2ee-ab79-61cf-c2f8-3a270f946c00', '01a2233e-4e82-8003-a78f-35b8ba8ed190', 1, 1, 'fake', 'ended', 'captured', 'card', 'Card', 'TH', NULL, NULL, 'THB', '1590.00', 'INCLUSIVE', '0.029', '46.11', '0', '1590.00', 159000, NULL, 'ref-542ff2ee-ab79-61cf-c2f8-3a270f946c00', '{"type":"redirect","redirect":{"url":"http://gateway.test/pay","method":"GET","fields":{}}}', NULL, 0, '2026-11-28 17:40:15.661+00', NULL, '2026-11-28 17:40:15.689+00', 'fake', NULL, 0, NULL, NULL, NULL, 1, NULL, NULL),
	('545faa79-5aa3-d61a-82b6-2f670f946c00', '01a2233e-4eda-8000-b00c-c1c4d90d49a2', 1, 1, 'fake', 'ended', 'captured', 'card', 'Card', 'TH', NULL, NULL, 'THB', '1590.00', 'INCLUSIVE', '0.029', '46.11', '0', '1590.00', 159000, NULL, 'ref-545faa79-5aa3-d61a-82b6-2f670f946c00', '{"type":"redirect","redirect":{"url":"http://gateway.test/pay","method":"GET","fields":{}}}', NULL, 0, '2026-11-28 17:40:15.715+00', NULL, '2026-11-28 17:40:15.726+00', 'fake', NULL, 0, NULL, NULL, NULL, 1, NULL, NULL);
INSERT INTO public.statement VALUES
	('01a2233e-4d0e-8003-8cb7-4fe232a1c8e4', 1, 'THB', '', 1, '2026-11-22', 'UTC', 0, 159000, -4611, 0, 0, 0, 0, 0, 154389, 0, 4, '2026-11-28 17:40:15.247+00', -1, '1970-01-01 00:00:00+00', '2026-11-28 17:40:15.247+00');
INSERT INTO public.tax_rate VALUES
	('TH', 0.07000000);
SELECT pg_catalog.setval('public.fraud_rule_id_seq', 2, true);
SELECT pg_catalog.setval('public.ledger_entry_entry_number_seq', 15, true);
SELECT pg_catalog.setval('public.merchant_id_seq', 2, true);
SELECT pg_catalog.setval('public.payment_method_id_seq', 3, true);
SELECT pg_catalog.setval('public.provider_account_id_seq', 3, true);
ALTER TABLE ONLY public.api_call
    ADD CONSTRAINT api_call_pkey PRIMARY KEY (at, id);
ALTER TABLE ONLY public.api_key
    ADD CONSTRAINT api_key_pkey PRIMARY KEY (public_id);
ALTER TABLE ONLY public.attempt
    ADD CONSTRAINT attempt_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.buyer_call_state
    ADD CONSTRAINT buyer_call_state_pkey PRIMARY KEY (account_id);
ALTER TABLE ONLY public.callback
    ADD CONSTRAINT callback_pkey PRIMARY KEY (account_id, callback_id);
ALTER TABLE ONLY public.callback_secret
    ADD CONSTRAINT callback_secret_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.capture
    ADD CONSTRAINT capture_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.capture
    ADD CONSTRAINT capture_reference UNIQUE (account_id, reference);
ALTER TABLE ONLY public.catalog_shown
    ADD CONSTRAINT catalog_shown_pkey PRIMARY KEY (merchant_id, viewer);
ALTER TABLE ONLY public.cell
    ADD CONSTRAINT cell_pkey PRIMARY KEY (number);
ALTER TABLE ONLY public.cell_process
    ADD CONSTRAINT cell_process_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.cell_transfer
    ADD CONSTRAINT cell_transfer_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.chain_contract
    ADD CONSTRAINT chain_contract_once UNIQUE (chain, address) DEFERRABLE;
ALTER TABLE ONLY public.chain_contract
    ADD CONSTRAINT chain_contract_pkey PRIMARY KEY (account_id);
ALTER TABLE ONLY public.chain_cursor
    ADD CONSTRAINT chain_cursor_pkey PRIMARY KEY (chain);
ALTER TABLE ONLY public.chain_hint
    ADD CONSTRAINT chain_hint_pkey PRIMARY KEY (session_id, tx_hash);
ALTER TABLE ONLY public.chain
    ADD CONSTRAINT chain_network_id_key UNIQUE (network_id);
ALTER TABLE ONLY public.chain
    ADD CONSTRAINT chain_pkey PRIMARY KEY (slug);
ALTER TABLE ONLY public.chain_receipt
    ADD CONSTRAINT chain_receipt_once UNIQUE (chain, tx_hash, log_index);
ALTER TABLE ONLY public.chain_receipt
    ADD CONSTRAINT chain_receipt_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.chain_refund
    ADD CONSTRAINT chain_refund_once UNIQUE (chain, tx_hash, log_index);
ALTER TABLE ONLY public.chain_refund
    ADD CONSTRAINT chain_refund_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.chain_refund_try
    ADD CONSTRAINT chain_refund_try_pkey PRIMARY KEY (refund_id);
ALTER TABLE ONLY public.chain_sighting
    ADD CONSTRAINT chain_sighting_pkey PRIMARY KEY (chain, tx_hash, log_index);
ALTER TABLE ONLY public.chain_token
    ADD CONSTRAINT chain_token_pkey PRIMARY KEY (chain, symbol);
ALTER TABLE ONLY public.checkout
    ADD CONSTRAINT checkout_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.completed_sign_in
    ADD CONSTRAINT completed_sign_in_pkey PRIMARY KEY (digest);
ALTER TABLE ONLY public.configuration_change
    ADD CONSTRAINT configuration_change_pkey PRIMARY KEY (number, table_name, key);
ALTER TABLE ONLY public.configuration_copy
    ADD CONSTRAINT configuration_copy_pkey PRIMARY KEY (only_row);
ALTER TABLE ONLY public.configuration_version
    ADD CONSTRAINT configuration_version_pkey PRIMARY KEY (only_row);
ALTER TABLE ONLY public.console_session
    ADD CONSTRAINT console_session_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.delivery
    ADD CONSTRAINT delivery_pkey PRIMARY KEY (event_id);
ALTER TABLE ONLY public.dispute
    ADD CONSTRAINT dispute_case_id_key UNIQUE (case_id);
ALTER TABLE ONLY public.dispute
    ADD CONSTRAINT dispute_once UNIQUE (account_id, reference);
ALTER TABLE ONLY public.dispute
    ADD CONSTRAINT dispute_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.endpoint_outage
    ADD CONSTRAINT endpoint_outage_pkey PRIMARY KEY (merchant_id);
ALTER TABLE ONLY public.event_feed
    ADD CONSTRAINT event_feed_pkey PRIMARY KEY (merchant_id);
ALTER TABLE ONLY public.event
    ADD CONSTRAINT event_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.figure_mark
    ADD CONSTRAINT figure_mark_pkey PRIMARY KEY (only_row);
ALTER TABLE ONLY public.fraud_decision
    ADD CONSTRAINT fraud_decision_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.fraud_rule
    ADD CONSTRAINT fraud_rule_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.gateway_call
    ADD CONSTRAINT gateway_call_pkey PRIMARY KEY (at, id);
ALTER TABLE ONLY public.gateway_outage
    ADD CONSTRAINT gateway_outage_pkey PRIMARY KEY (account_id, channel);
ALTER TABLE ONLY public.gateway_payout
    ADD CONSTRAINT gateway_payout_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.hourly_figure
    ADD CONSTRAINT hourly_figure_pkey PRIMARY KEY (hour, subject, kind, value);
ALTER TABLE ONLY public.idempotency
    ADD CONSTRAINT idempotency_pkey PRIMARY KEY (merchant_id, operation, key);
ALTER TABLE ONLY public.installation
    ADD CONSTRAINT installation_pkey PRIMARY KEY (only_one);
ALTER TABLE ONLY public.ledger_entry
    ADD CONSTRAINT ledger_entry_pkey PRIMARY KEY (fact_id, fact, leg);
ALTER TABLE ONLY public.mail
    ADD CONSTRAINT mail_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.member_link
    ADD CONSTRAINT member_link_digest_key UNIQUE (digest);
ALTER TABLE ONLY public.member_link
    ADD CONSTRAINT member_link_pkey PRIMARY KEY (member_id);
ALTER TABLE ONLY public.member_passkey
    ADD CONSTRAINT member_passkey_credential_id_key UNIQUE (credential_id);
ALTER TABLE ONLY public.member_passkey
    ADD CONSTRAINT member_passkey_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.member
    ADD CONSTRAINT member_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.member_session
    ADD CONSTRAINT member_session_digest_key UNIQUE (digest);
ALTER TABLE ONLY public.member_session
    ADD CONSTRAINT member_session_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.member_session
    ADD CONSTRAINT member_session_previous_digest_key UNIQUE (previous_digest);
ALTER TABLE ONLY public.merchant_cell
    ADD CONSTRAINT merchant_cell_pkey PRIMARY KEY (merchant_id, since);
ALTER TABLE ONLY public.merchant
    ADD CONSTRAINT merchant_mode UNIQUE (id, livemode);
ALTER TABLE ONLY public.merchant
    ADD CONSTRAINT merchant_one_test_side UNIQUE (live_merchant);
ALTER TABLE ONLY public.merchant
    ADD CONSTRAINT merchant_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.money_case
    ADD CONSTRAINT money_case_once UNIQUE NULLS NOT DISTINCT (session_id, capture_id, receipt_id, refund_id, subject, kind);
ALTER TABLE ONLY public.money_case
    ADD CONSTRAINT money_case_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.operator_identity
    ADD CONSTRAINT operator_identity_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.operator_token
    ADD CONSTRAINT operator_token_pkey PRIMARY KEY (public_id);
ALTER TABLE ONLY public.payment_method
    ADD CONSTRAINT payment_method_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.payment
    ADD CONSTRAINT payment_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.payout
    ADD CONSTRAINT payout_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.proposal
    ADD CONSTRAINT proposal_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.provider_account
    ADD CONSTRAINT provider_account_one_mode UNIQUE (id, livemode);
ALTER TABLE ONLY public.provider_account
    ADD CONSTRAINT provider_account_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.provider
    ADD CONSTRAINT provider_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.rate_limit
    ADD CONSTRAINT rate_limit_pkey PRIMARY KEY (merchant_id, class);
ALTER TABLE ONLY public.rate_state
    ADD CONSTRAINT rate_state_pkey PRIMARY KEY (merchant_id, class);
ALTER TABLE ONLY public.reconciliation_balance
    ADD CONSTRAINT reconciliation_balance_pkey PRIMARY KEY (run_id, currency);
ALTER TABLE ONLY public.reconciliation_blocks
    ADD CONSTRAINT reconciliation_blocks_pkey PRIMARY KEY (run_id);
ALTER TABLE ONLY public.reconciliation_file
    ADD CONSTRAINT reconciliation_file_pkey PRIMARY KEY (source, account_id, name, version);
ALTER TABLE ONLY public.reconciliation_run
    ADD CONSTRAINT reconciliation_run_once UNIQUE (account_id, sha256);
ALTER TABLE ONLY public.reconciliation_run
    ADD CONSTRAINT reconciliation_run_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.reconciliation_sum
    ADD CONSTRAINT reconciliation_sum_pkey PRIMARY KEY (run_id, type, currency);
ALTER TABLE ONLY public.refund
    ADD CONSTRAINT refund_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.restriction
    ADD CONSTRAINT restriction_pkey PRIMARY KEY (type, country);
ALTER TABLE ONLY public.ring_key
    ADD CONSTRAINT ring_key_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.schema_migration
    ADD CONSTRAINT schema_migration_pkey PRIMARY KEY (number);
ALTER TABLE public.session
    ADD CONSTRAINT session_number CHECK (((number >= 1) AND (number <= 20))) NOT VALID;
ALTER TABLE ONLY public.session
    ADD CONSTRAINT session_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.statement_close
    ADD CONSTRAINT statement_close_pkey PRIMARY KEY (merchant_id);
ALTER TABLE ONLY public.statement
    ADD CONSTRAINT statement_order UNIQUE (merchant_id, currency, chain, number);
ALTER TABLE ONLY public.statement
    ADD CONSTRAINT statement_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.tax_rate
    ADD CONSTRAINT tax_rate_pkey PRIMARY KEY (country);
ALTER TABLE ONLY public.test_clock
    ADD CONSTRAINT test_clock_pkey PRIMARY KEY (merchant_id);
ALTER TABLE ONLY public.test_refund
    ADD CONSTRAINT test_refund_pkey PRIMARY KEY (refund_id);
ALTER TABLE ONLY public.test_session
    ADD CONSTRAINT test_session_pkey PRIMARY KEY (session_id);
CREATE INDEX api_call_failed ON public.api_call USING btree (merchant_id, at, id) WHERE (status >= 400);
CREATE INDEX api_call_merchant ON public.api_call USING btree (merchant_id, at, id);
CREATE INDEX api_key_merchant ON public.api_key USING btree (merchant_id);
CREATE INDEX attempt_event ON public.attempt USING btree (event_id, id);
CREATE INDEX audit_merchant ON public.audit USING btree (merchant_id, id);
CREATE INDEX buyer_attempt_address ON public.buyer_attempt USING btree (address_digest, at);
CREATE INDEX buyer_attempt_at ON public.buyer_attempt USING btree (at);
CREATE INDEX callback_body ON public.callback USING btree (applied_at) WHERE ((applied_at IS NOT NULL) AND (body IS NOT NULL));
CREATE INDEX callback_refund ON public.callback USING btree (refund_id) WHERE (refund_id IS NOT NULL);
CREATE INDEX callback_secret_merchant ON public.callback_secret USING btree (merchant_id, created_at DESC);
CREATE INDEX callback_session ON public.callback USING btree (session_id) WHERE (session_id IS NOT NULL);
CREATE INDEX callback_waiting ON public.callback USING btree (session_id) WHERE (applied_at IS NULL);
CREATE INDEX capture_at ON public.capture USING brin (captured_at);
CREATE UNIQUE INDEX capture_one_credited ON public.capture USING btree (payment_id) WHERE credited;
CREATE INDEX capture_payment ON public.capture USING btree (payment_id);
CREATE UNIQUE INDEX capture_receipt ON public.capture USING btree (receipt_id) WHERE (receipt_id IS NOT NULL);
CREATE INDEX cell_transfer_of_merchant ON public.cell_transfer USING btree (merchant_id, created_at);
CREATE INDEX cell_transfer_waiting ON public.cell_transfer USING btree (id) WHERE (arrived_at IS NULL);
CREATE INDEX chain_hint_tx ON public.chain_hint USING hash (tx_hash);
CREATE INDEX chain_receipt_address ON public.chain_receipt USING btree (final_at) WHERE (payer IS NOT NULL);
CREATE INDEX chain_receipt_block ON public.chain_receipt USING btree (account_id, block);
CREATE UNIQUE INDEX chain_receipt_one_credit ON public.chain_receipt USING btree (session_id) WHERE (disposition = 'credited'::text);
CREATE INDEX chain_receipt_payer_address ON public.chain_receipt USING btree (payer);
CREATE INDEX chain_receipt_session ON public.chain_receipt USING btree (session_id);
CREATE INDEX chain_refund_block ON public.chain_refund USING btree (account_id, block);
CREATE INDEX chain_refund_new ON public.chain_refund USING btree (chain, block, log_index) WHERE (disposition IS NULL);
CREATE INDEX chain_refund_ref ON public.chain_refund USING btree (refund_ref);
CREATE UNIQUE INDEX chain_refund_settles ON public.chain_refund USING btree (refund_id) WHERE (refund_id IS NOT NULL);
CREATE INDEX chain_refund_try_tx ON public.chain_refund_try USING hash (tx_hash);
CREATE INDEX chain_sighting_session ON public.chain_sighting USING btree (session_id);
CREATE INDEX chain_sighting_there ON public.chain_sighting USING btree (chain, block) WHERE (gone_at IS NULL);
CREATE INDEX completed_sign_in_expiry ON public.completed_sign_in USING btree (expires_at);
CREATE INDEX console_session_expiry ON public.console_session USING btree (expires_at);
CREATE INDEX console_session_of_identity ON public.console_session USING btree (identity_id, id) WHERE (identity_id IS NOT NULL);
CREATE INDEX console_session_of_token ON public.console_session USING btree (token_public_id, id);
CREATE INDEX delivery_due ON public.delivery USING btree (merchant_id, next_at) WHERE (state = 'pending'::text);
CREATE INDEX delivery_missed ON public.delivery USING btree (merchant_id, event_id) WHERE (state = ANY (ARRAY['dead'::text, 'skipped'::text]));
CREATE INDEX delivery_missed_state ON public.delivery USING btree (state, merchant_id, event_id) WHERE (state = ANY (ARRAY['dead'::text, 'skipped'::text]));
CREATE INDEX dispute_capture ON public.dispute USING btree (capture_id);
CREATE INDEX dispute_created ON public.dispute USING btree (created_at);
CREATE INDEX dispute_reinstated ON public.dispute USING btree (updated_at) WHERE (funds = 'reinstated'::text);
CREATE INDEX dispute_running ON public.dispute USING btree (id) WHERE (state = ANY (ARRAY['inquiry'::text, 'open'::text, 'under_review'::text]));
CREATE UNIQUE INDEX event_feed_order ON public.event USING btree (merchant_id, feed_position) WHERE (feed_position IS NOT NULL);
CREATE INDEX event_merchant ON public.event USING btree (merchant_id, id);
CREATE UNIQUE INDEX event_one_terminal ON public.event USING btree (payment_id);
CREATE INDEX event_sealed_body ON public.event USING btree (split_part(body, ':'::text, 2)) WHERE starts_with(body, 'sealed:'::text);
CREATE INDEX event_unnumbered ON public.event USING btree (merchant_id, id) WHERE (feed_position IS NULL);
CREATE INDEX fraud_decision_decided ON public.fraud_decision USING btree (decided_at);
CREATE UNIQUE INDEX fraud_decision_once ON public.fraud_decision USING btree (payment_id, rule_id) WHERE (payment_id IS NOT NULL);
CREATE INDEX gateway_call_failed ON public.gateway_call USING btree (account_id, at DESC) WHERE (outcome <> 'answered'::text);
CREATE INDEX gateway_call_payment ON public.gateway_call USING btree (payment_id, at) WHERE (payment_id IS NOT NULL);
CREATE UNIQUE INDEX gateway_payout_once ON public.gateway_payout USING btree (account_id, reference) WHERE (reversed_at IS NULL);
CREATE INDEX idempotency_created ON public.idempotency USING btree (created_at);
CREATE INDEX ledger_entry_of_merchant ON public.ledger_entry USING btree (merchant_id, entry_number);
CREATE INDEX mail_created ON public.mail USING btree (created_at);
CREATE INDEX mail_due ON public.mail USING btree (next_at);
CREATE UNIQUE INDEX mail_receipt_once ON public.mail USING btree (payment_id);
CREATE UNIQUE INDEX member_email_once ON public.member USING btree (merchant_id, lower(email));
CREATE INDEX member_passkey_member ON public.member_passkey USING btree (member_id, id);
CREATE INDEX member_session_member ON public.member_session USING btree (member_id, expires_at);
CREATE UNIQUE INDEX merchant_cell_present ON public.merchant_cell USING btree (merchant_id) WHERE (until IS NULL);
CREATE INDEX money_case_merchant ON public.money_case USING btree (merchant_id, id) WHERE (merchant_id IS NOT NULL);
CREATE INDEX money_case_open ON public.money_case USING btree (id) WHERE (status = 'OPEN'::text);
CREATE INDEX money_case_payment ON public.money_case USING btree (payment_id) WHERE (payment_id IS NOT NULL);
CREATE UNIQUE INDEX operator_identity_name_once ON public.operator_identity USING btree (lower(name));
CREATE UNIQUE INDEX operator_identity_person ON public.operator_identity USING btree (issuer, subject);
CREATE UNIQUE INDEX operator_token_name_once ON public.operator_token USING btree (lower(name));
CREATE INDEX payment_details ON public.payment USING btree (COALESCE(paid_at, failed_at, expired_at, cancelled_at)) WHERE ((status <> ALL (ARRAY['PENDING'::text, 'PROCESSING'::text])) AND ((payer_email IS NOT NULL) OR ((metadata)::text <> '{}'::text)));
CREATE INDEX payment_due ON public.payment USING btree (expires_at) WHERE (status = ANY (ARRAY['PENDING'::text, 'PROCESSING'::text]));
CREATE INDEX payment_ended ON public.payment USING btree (COALESCE(paid_at, failed_at, expired_at, cancelled_at)) WHERE (status <> ALL (ARRAY['PENDING'::text, 'PROCESSING'::text]));
CREATE INDEX payment_listed ON public.payment USING btree (merchant_id, created_at, id);
CREATE INDEX payment_listed_kind ON public.payment USING btree (merchant_id, currency, status, created_at NULLS FIRST, id);
CREATE INDEX payment_listed_payer ON public.payment USING btree (merchant_id, payer_uid, currency, status, created_at, id NULLS FIRST);
CREATE INDEX payment_method_merchant ON public.payment_method USING btree (merchant_id, "position", id);
CREATE INDEX payment_order_number ON public.payment USING btree (hashtextextended(public.payment_order_id(metadata), (0)::bigint)) WHERE (public.payment_order_id(metadata) IS NOT NULL);
CREATE INDEX payment_payer ON public.payment USING btree (COALESCE(paid_at, failed_at, expired_at, cancelled_at)) WHERE ((status <> ALL (ARRAY['PENDING'::text, 'PROCESSING'::text])) AND (payer_uid <> '(erased)'::text));
CREATE INDEX payment_payer_email ON public.payment USING btree (lower(payer_email)) WHERE (payer_email IS NOT NULL);
CREATE INDEX payment_processing ON public.payment USING btree (created_at) WHERE (status = 'PROCESSING'::text);
CREATE INDEX payment_sealed_email ON public.payment USING btree (split_part(payer_email, ':'::text, 2), split_part(payer_email, ':'::text, 3)) WHERE starts_with(payer_email, 'sealed:'::text);
CREATE INDEX payment_sealed_metadata ON public.payment USING btree (split_part((metadata #>> '{}'::text[]), ':'::text, 2), split_part((metadata #>> '{}'::text[]), ':'::text, 3)) WHERE (json_typeof(metadata) = 'string'::text);
CREATE INDEX payout_of_merchant ON public.payout USING btree (merchant_id, id);
CREATE UNIQUE INDEX payout_once ON public.payout USING btree (merchant_id, reference) WHERE (reversed_at IS NULL);
CREATE INDEX proposal_sealed ON public.proposal USING btree (id) WHERE (sealed IS NOT NULL);
CREATE INDEX provider_account_of_merchant ON public.provider_account USING btree (merchant_id) WHERE (merchant_id IS NOT NULL);
CREATE INDEX reconciliation_blocks_newest ON public.reconciliation_blocks USING btree (account_id, last_block);
CREATE INDEX reconciliation_file_run ON public.reconciliation_file USING btree (run_id);
CREATE INDEX reconciliation_run_recent ON public.reconciliation_run USING btree (ended_at) WHERE (status <> 'matched'::text);
CREATE INDEX refund_capture ON public.refund USING btree (capture_id);
CREATE INDEX refund_case ON public.refund USING btree (case_id, id) WHERE (case_id IS NOT NULL);
CREATE INDEX refund_done ON public.refund USING btree (updated_at) WHERE (status = 'SUCCEEDED'::text);
CREATE INDEX refund_due ON public.refund USING btree (next_at) WHERE (step = ANY (ARRAY['queued'::text, 'sent'::text]));
CREATE INDEX refund_merchant ON public.refund USING btree (merchant_id, id) WHERE (payment_id IS NOT NULL);
CREATE INDEX refund_on_chain ON public.refund USING btree (capture_id) WHERE ((step = 'sent'::text) AND (destination IS NOT NULL) AND (next_at IS NOT NULL));
CREATE UNIQUE INDEX refund_one_of_case ON public.refund USING btree (case_id) WHERE (status <> 'FAILED'::text);
CREATE INDEX refund_payment ON public.refund USING btree (payment_id, id) WHERE (payment_id IS NOT NULL);
CREATE INDEX refund_reference ON public.refund USING btree (reference) WHERE (reference IS NOT NULL);
CREATE INDEX refund_status ON public.refund USING btree (merchant_id, status, updated_at, id) WHERE (merchant_id IS NOT NULL);
CREATE INDEX refund_unapproved ON public.refund USING btree (merchant_id, created_at) WHERE ((destination IS NOT NULL) AND (approved_by IS NULL));
CREATE INDEX refund_updated ON public.refund USING btree (merchant_id, updated_at, id) WHERE (merchant_id IS NOT NULL);
CREATE INDEX refund_waiting ON public.refund USING btree (id) WHERE (step = 'approval'::text);
CREATE INDEX session_chain ON public.session USING btree (chain) WHERE ((chain IS NOT NULL) AND (life <> 'ended'::text));
CREATE INDEX session_inquire ON public.session USING btree (inquire_at) WHERE (life <> 'ended'::text);
CREATE UNIQUE INDEX session_one_opening ON public.session USING btree (payment_id) WHERE (life = 'opening'::text);
CREATE UNIQUE INDEX session_pay_uuid ON public.session USING btree (reference) WHERE (provider = 'gateway_contract'::text);
CREATE INDEX session_payment ON public.session USING btree (payment_id);
CREATE INDEX session_reference ON public.session USING hash (reference);
CREATE INDEX statement_of_merchant ON public.statement USING btree (merchant_id, id);
CREATE INDEX test_refund_by_session ON public.test_refund USING btree (session_id);
CREATE TRIGGER audit_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON public.audit FOR EACH STATEMENT EXECUTE FUNCTION public.audit_append_only();
CREATE TRIGGER capture_disputed BEFORE UPDATE OF reserved_minor ON public.capture FOR EACH ROW WHEN (((new.reserved_minor > old.reserved_minor) AND (new.disputed_minor > (0)::numeric) AND (((new.refunded_minor + new.reserved_minor) + new.disputed_minor) > new.amount_minor))) EXECUTE FUNCTION public.capture_disputed();
CREATE TRIGGER cell_step BEFORE UPDATE OF state ON public.cell FOR EACH ROW WHEN ((old.state <> new.state)) EXECUTE FUNCTION public.cell_step();
CREATE TRIGGER cell_transfer_stands BEFORE DELETE OR UPDATE ON public.cell_transfer FOR EACH ROW EXECUTE FUNCTION public.cell_transfer_stands();
CREATE TRIGGER cell_transfer_whole BEFORE INSERT ON public.cell_transfer FOR EACH ROW EXECUTE FUNCTION public.cell_transfer_whole();
CREATE CONSTRAINT TRIGGER configuration_version AFTER INSERT OR DELETE OR UPDATE ON public.catalog_shown DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.change_configuration_version();
CREATE CONSTRAINT TRIGGER configuration_version AFTER INSERT OR DELETE OR UPDATE ON public.chain_token DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.change_configuration_version();
CREATE CONSTRAINT TRIGGER configuration_version AFTER INSERT OR DELETE OR UPDATE ON public.merchant DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.change_configuration_version();
CREATE CONSTRAINT TRIGGER configuration_version AFTER INSERT OR DELETE OR UPDATE ON public.payment_method DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.change_configuration_version();
CREATE CONSTRAINT TRIGGER configuration_version AFTER INSERT OR DELETE OR UPDATE ON public.provider DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.change_configuration_version();
CREATE CONSTRAINT TRIGGER configuration_version AFTER INSERT OR DELETE OR UPDATE ON public.provider_account DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.change_configuration_version();
CREATE CONSTRAINT TRIGGER configuration_version AFTER INSERT OR DELETE OR UPDATE ON public.tax_rate DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.change_configuration_version();
CREATE TRIGGER copied_only BEFORE INSERT OR DELETE OR UPDATE OF public_id, merchant_id, name, digest, created_at, revoked_at, livemode OR TRUNCATE ON public.api_key FOR EACH STATEMENT EXECUTE FUNCTION public.copied_only();
CREATE TRIGGER copied_only BEFORE INSERT OR DELETE OR UPDATE OR TRUNCATE ON public.callback_secret FOR EACH STATEMENT EXECUTE FUNCTION public.copied_only();
CREATE TRIGGER copied_only BEFORE INSERT OR DELETE OR UPDATE OR TRUNCATE ON public.cell FOR EACH STATEMENT EXECUTE FUNCTION public.copied_only();
CREATE TRIGGER copied_only BEFORE INSERT OR DELETE OR UPDATE OR TRUNCATE ON public.chain FOR EACH STATEMENT EXECUTE FUNCTION public.copied_only();
CREATE TRIGGER copied_only BEFORE INSERT OR DELETE OR UPDATE OR TRUNCATE ON public.chain_contract FOR EACH STATEMENT EXECUTE FUNCTION public.copied_only();
CREATE TRIGGER copied_only BEFORE INSERT OR DELETE OR UPDATE OR TRUNCATE ON public.chain_token FOR EACH STATEMENT EXECUTE FUNCTION public.copied_only();
CREATE TRIGGER copied_only BEFORE INSERT OR DELETE OR UPDATE OR TRUNCATE ON public.fraud_rule FOR EACH STATEMENT EXECUTE FUNCTION public.copied_only();
CREATE TRIGGER copied_only BEFORE INSERT OR DELETE OR UPDATE OR TRUNCATE ON public.merchant FOR EACH STATEMENT EXECUTE FUNCTION public.copied_only();
CREATE TRIGGER copied_only BEFORE INSERT OR DELETE OR UPDATE OR TRUNCATE ON public.merchant_cell FOR EACH STATEMENT EXECUTE FUNCTION public.copied_only();
CREATE TRIGGER copied_only BEFORE INSERT OR DELETE OR UPDATE OR TRUNCATE ON public.payment_method FOR EACH STATEMENT EXECUTE FUNCTION public.copied_only();
CREATE TRIGGER copied_only BEFORE INSERT OR DELETE OR UPDATE OR TRUNCATE ON public.provider FOR EACH STATEMENT EXECUTE FUNCTION public.copied_only();
CREATE TRIGGER copied_only BEFORE INSERT OR DELETE OR UPDATE OR TRUNCATE ON public.provider_account FOR EACH STATEMENT EXECUTE FUNCTION public.copied_only();
CREATE TRIGGER copied_only BEFORE INSERT OR DELETE OR UPDATE OR TRUNCATE ON public.rate_limit FOR EACH STATEMENT EXECUTE FUNCTION public.copied_only();
CREATE TRIGGER copied_only BEFORE INSERT OR DELETE OR UPDATE OR TRUNCATE ON public.restriction FOR EACH STATEMENT EXECUTE FUNCTION public.copied_only();
CREATE TRIGGER copied_only BEFORE INSERT OR DELETE OR UPDATE OR TRUNCATE ON public.ring_key FOR EACH STATEMENT EXECUTE FUNCTION public.copied_only();
CREATE TRIGGER copied_only BEFORE INSERT OR DELETE OR UPDATE OR TRUNCATE ON public.tax_rate FOR EACH STATEMENT EXECUTE FUNCTION public.copied_only();
CREATE TRIGGER gateway_payout_stands BEFORE DELETE OR UPDATE ON public.gateway_payout FOR EACH ROW EXECUTE FUNCTION public.gateway_payout_stands();
CREATE TRIGGER ledger_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON public.ledger_entry FOR EACH STATEMENT EXECUTE FUNCTION public.ledger_append_only();
CREATE TRIGGER merchant_market_changed BEFORE UPDATE ON public.merchant FOR EACH ROW WHEN ((OLD.countries, OLD.currencies, OLD.activation IN ('APPLIED', 'VALIDATED', 'ACTIVE')) IS DISTINCT FROM (NEW.countries, NEW.currencies, NEW.activation IN ('APPLIED', 'VALIDATED', 'ACTIVE'))) EXECUTE FUNCTION public.market_changed();
CREATE CONSTRAINT TRIGGER note_change AFTER INSERT OR DELETE OR UPDATE OF public_id, merchant_id, name, digest, created_at, revoked_at, livemode ON public.api_key DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.note_change('public_id');
CREATE CONSTRAINT TRIGGER note_change AFTER INSERT OR DELETE OR UPDATE ON public.callback_secret DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.note_change('id');
CREATE CONSTRAINT TRIGGER note_change AFTER INSERT OR DELETE OR UPDATE ON public.cell DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.note_change('number');
CREATE CONSTRAINT TRIGGER note_change AFTER INSERT OR DELETE OR UPDATE ON public.chain DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.note_change('slug');
CREATE CONSTRAINT TRIGGER note_change AFTER INSERT OR DELETE OR UPDATE ON public.chain_contract DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.note_change('account_id');
CREATE CONSTRAINT TRIGGER note_change AFTER INSERT OR DELETE OR UPDATE ON public.chain_token DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.note_change('chain', 'symbol');
CREATE CONSTRAINT TRIGGER note_change AFTER INSERT OR DELETE OR UPDATE ON public.fraud_rule DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.note_change('id');
CREATE CONSTRAINT TRIGGER note_change AFTER INSERT OR DELETE OR UPDATE ON public.merchant DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.note_change('id');
CREATE CONSTRAINT TRIGGER note_change AFTER INSERT OR DELETE OR UPDATE ON public.merchant_cell DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.note_change('merchant_id', 'since');
CREATE CONSTRAINT TRIGGER note_change AFTER INSERT OR DELETE OR UPDATE ON public.payment_method DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.note_change('id');
CREATE CONSTRAINT TRIGGER note_change AFTER INSERT OR DELETE OR UPDATE ON public.provider DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.note_change('name');
CREATE CONSTRAINT TRIGGER note_change AFTER INSERT OR DELETE OR UPDATE ON public.provider_account DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.note_change('id');
CREATE CONSTRAINT TRIGGER note_change AFTER INSERT OR DELETE OR UPDATE ON public.rate_limit DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.note_change('merchant_id', 'class');
CREATE CONSTRAINT TRIGGER note_change AFTER INSERT OR DELETE OR UPDATE ON public.restriction DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.note_change('type', 'country');
CREATE CONSTRAINT TRIGGER note_change AFTER INSERT OR DELETE OR UPDATE ON public.ring_key DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.note_change('name');
CREATE CONSTRAINT TRIGGER note_change AFTER INSERT OR DELETE OR UPDATE ON public.tax_rate DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.note_change('country');
CREATE TRIGGER payment_arrow BEFORE UPDATE OF status ON public.payment FOR EACH ROW WHEN ((old.status <> new.status)) EXECUTE FUNCTION public.payment_arrow();
CREATE TRIGGER payment_method_market_changed BEFORE UPDATE ON public.payment_method FOR EACH ROW WHEN ((OLD.countries, OLD.currencies, OLD.enabled) IS DISTINCT FROM (NEW.countries, NEW.currencies, NEW.enabled)) EXECUTE FUNCTION public.market_changed();
CREATE TRIGGER payout_stands BEFORE DELETE OR UPDATE ON public.payout FOR EACH ROW EXECUTE FUNCTION public.payout_stands();
CREATE TRIGGER payout_within_payable BEFORE INSERT ON public.payout FOR EACH ROW EXECUTE FUNCTION public.payout_within_payable();
CREATE TRIGGER refund_frozen BEFORE UPDATE OF merchant_id, payment_id, capture_id, case_id, amount, amount_text, currency, amount_minor, reason, destination, requested_by, created_at ON public.refund FOR EACH ROW EXECUTE FUNCTION public.refund_frozen();
CREATE TRIGGER session_quote_frozen BEFORE UPDATE OF payment_id, account_id, payment_method_id, provider, currency, amount, fee_mode, fee_rate, fee_amount, estimated_tax, total_amount, total_minor ON public.session FOR EACH ROW EXECUTE FUNCTION public.session_quote_frozen();
CREATE TRIGGER session_token_frozen BEFORE UPDATE OF token_address, token_decimals, token_zero_first ON public.session FOR EACH ROW EXECUTE FUNCTION public.session_quote_frozen();
CREATE TRIGGER statement_close_forward BEFORE DELETE OR UPDATE ON public.statement_close FOR EACH ROW EXECUTE FUNCTION public.statement_close_forward();
CREATE TRIGGER statement_follows BEFORE INSERT ON public.statement FOR EACH ROW EXECUTE FUNCTION public.statement_follows();
CREATE TRIGGER statement_frozen BEFORE DELETE OR UPDATE OR TRUNCATE ON public.statement FOR EACH STATEMENT EXECUTE FUNCTION public.statement_frozen();
ALTER TABLE ONLY public.api_key
    ADD CONSTRAINT api_key_merchant_id_fkey FOREIGN KEY (merchant_id) REFERENCES public.merchant(id);
ALTER TABLE ONLY public.api_key
    ADD CONSTRAINT api_key_mode FOREIGN KEY (merchant_id, livemode) REFERENCES public.merchant(id, livemode);
ALTER TABLE ONLY public.attempt
    ADD CONSTRAINT attempt_event_id_fkey FOREIGN KEY (event_id) REFERENCES public.event(id);
ALTER TABLE ONLY public.callback
    ADD CONSTRAINT callback_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.provider_account(id);
ALTER TABLE ONLY public.callback_secret
    ADD CONSTRAINT callback_secret_merchant_id_fkey FOREIGN KEY (merchant_id) REFERENCES public.merchant(id);
ALTER TABLE ONLY public.capture
    ADD CONSTRAINT capture_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.provider_account(id);
ALTER TABLE ONLY public.capture
    ADD CONSTRAINT capture_callback FOREIGN KEY (account_id, callback_id) REFERENCES public.callback(account_id, callback_id);
ALTER TABLE ONLY public.capture
    ADD CONSTRAINT capture_payment_id_fkey FOREIGN KEY (payment_id) REFERENCES public.payment(id);
ALTER TABLE ONLY public.capture
    ADD CONSTRAINT capture_receipt_id_fkey FOREIGN KEY (receipt_id) REFERENCES public.chain_receipt(id);
ALTER TABLE ONLY public.capture
    ADD CONSTRAINT capture_session_id_fkey FOREIGN KEY (session_id) REFERENCES public.session(id);
ALTER TABLE ONLY public.catalog_shown
    ADD CONSTRAINT catalog_shown_merchant_id_fkey FOREIGN KEY (merchant_id) REFERENCES public.merchant(id);
ALTER TABLE ONLY public.cell_transfer
    ADD CONSTRAINT cell_transfer_merchant_id_fkey FOREIGN KEY (merchant_id) REFERENCES public.merchant(id);
ALTER TABLE ONLY public.chain_contract
    ADD CONSTRAINT chain_contract_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.provider_account(id);
ALTER TABLE ONLY public.chain_contract
    ADD CONSTRAINT chain_contract_chain_fkey FOREIGN KEY (chain) REFERENCES public.chain(slug);
ALTER TABLE ONLY public.chain_cursor
    ADD CONSTRAINT chain_cursor_chain_fkey FOREIGN KEY (chain) REFERENCES public.chain(slug);
ALTER TABLE ONLY public.chain_hint
    ADD CONSTRAINT chain_hint_session_id_fkey FOREIGN KEY (session_id) REFERENCES public.session(id);
ALTER TABLE ONLY public.chain_receipt
    ADD CONSTRAINT chain_receipt_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.chain_contract(account_id);
ALTER TABLE ONLY public.chain_receipt
    ADD CONSTRAINT chain_receipt_chain_fkey FOREIGN KEY (chain) REFERENCES public.chain(slug);
ALTER TABLE ONLY public.chain_receipt
    ADD CONSTRAINT chain_receipt_session_id_fkey FOREIGN KEY (session_id) REFERENCES public.session(id);
ALTER TABLE ONLY public.chain_refund
    ADD CONSTRAINT chain_refund_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.chain_contract(account_id);
ALTER TABLE ONLY public.chain_refund
    ADD CONSTRAINT chain_refund_chain_fkey FOREIGN KEY (chain) REFERENCES public.chain(slug);
ALTER TABLE ONLY public.chain_refund
    ADD CONSTRAINT chain_refund_refund_id_fkey FOREIGN KEY (refund_id) REFERENCES public.refund(id);
ALTER TABLE ONLY public.chain_sighting
    ADD CONSTRAINT chain_sighting_chain_fkey FOREIGN KEY (chain) REFERENCES public.chain(slug);
ALTER TABLE ONLY public.chain_sighting
    ADD CONSTRAINT chain_sighting_session_id_fkey FOREIGN KEY (session_id) REFERENCES public.session(id);
ALTER TABLE ONLY public.chain_token
    ADD CONSTRAINT chain_token_chain_fkey FOREIGN KEY (chain) REFERENCES public.chain(slug);
ALTER TABLE ONLY public.console_session
    ADD CONSTRAINT console_session_identity_id_fkey FOREIGN KEY (identity_id) REFERENCES public.operator_identity(id);
ALTER TABLE ONLY public.delivery
    ADD CONSTRAINT delivery_event_id_fkey FOREIGN KEY (event_id) REFERENCES public.event(id);
ALTER TABLE ONLY public.dispute
    ADD CONSTRAINT dispute_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.provider_account(id);
ALTER TABLE ONLY public.dispute
    ADD CONSTRAINT dispute_capture_id_fkey FOREIGN KEY (capture_id) REFERENCES public.capture(id);
ALTER TABLE ONLY public.dispute
    ADD CONSTRAINT dispute_case_id_fkey FOREIGN KEY (case_id) REFERENCES public.money_case(id);
ALTER TABLE ONLY public.endpoint_outage
    ADD CONSTRAINT endpoint_outage_merchant_id_fkey FOREIGN KEY (merchant_id) REFERENCES public.merchant(id);
ALTER TABLE ONLY public.event_feed
    ADD CONSTRAINT event_feed_merchant_id_fkey FOREIGN KEY (merchant_id) REFERENCES public.merchant(id);
ALTER TABLE ONLY public.event
    ADD CONSTRAINT event_payment_id_fkey FOREIGN KEY (payment_id) REFERENCES public.payment(id);
ALTER TABLE ONLY public.fraud_decision
    ADD CONSTRAINT fraud_decision_rule_id_fkey FOREIGN KEY (rule_id) REFERENCES public.fraud_rule(id);
ALTER TABLE ONLY public.fraud_rule
    ADD CONSTRAINT fraud_rule_merchant_id_fkey FOREIGN KEY (merchant_id) REFERENCES public.merchant(id);
ALTER TABLE ONLY public.gateway_outage
    ADD CONSTRAINT gateway_outage_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.provider_account(id);
ALTER TABLE ONLY public.gateway_payout
    ADD CONSTRAINT gateway_payout_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.provider_account(id);
ALTER TABLE ONLY public.mail
    ADD CONSTRAINT mail_payment_id_fkey FOREIGN KEY (payment_id) REFERENCES public.payment(id);
ALTER TABLE ONLY public.member_link
    ADD CONSTRAINT member_link_member_id_fkey FOREIGN KEY (member_id) REFERENCES public.member(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.member
    ADD CONSTRAINT member_merchant_id_fkey FOREIGN KEY (merchant_id) REFERENCES public.merchant(id);
ALTER TABLE ONLY public.member_passkey
    ADD CONSTRAINT member_passkey_member_id_fkey FOREIGN KEY (member_id) REFERENCES public.member(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.member_session
    ADD CONSTRAINT member_session_member_id_fkey FOREIGN KEY (member_id) REFERENCES public.member(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.merchant_cell
    ADD CONSTRAINT merchant_cell_cell_fkey FOREIGN KEY (cell) REFERENCES public.cell(number);
ALTER TABLE ONLY public.merchant_cell
    ADD CONSTRAINT merchant_cell_merchant_id_fkey FOREIGN KEY (merchant_id) REFERENCES public.merchant(id);
ALTER TABLE ONLY public.merchant
    ADD CONSTRAINT merchant_live_merchant FOREIGN KEY (live_merchant) REFERENCES public.merchant(id);
ALTER TABLE ONLY public.money_case
    ADD CONSTRAINT money_case_capture_id_fkey FOREIGN KEY (capture_id) REFERENCES public.capture(id);
ALTER TABLE ONLY public.money_case
    ADD CONSTRAINT money_case_merchant_id_fkey FOREIGN KEY (merchant_id) REFERENCES public.merchant(id);
ALTER TABLE ONLY public.money_case
    ADD CONSTRAINT money_case_payment_id_fkey FOREIGN KEY (payment_id) REFERENCES public.payment(id);
ALTER TABLE ONLY public.money_case
    ADD CONSTRAINT money_case_receipt_id_fkey FOREIGN KEY (receipt_id) REFERENCES public.chain_receipt(id);
ALTER TABLE ONLY public.money_case
    ADD CONSTRAINT money_case_refund_id_fkey FOREIGN KEY (refund_id) REFERENCES public.refund(id);
ALTER TABLE ONLY public.money_case
    ADD CONSTRAINT money_case_session_id_fkey FOREIGN KEY (session_id) REFERENCES public.session(id);
ALTER TABLE ONLY public.payment_method
    ADD CONSTRAINT payment_method_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.provider_account(id);
ALTER TABLE ONLY public.payment_method
    ADD CONSTRAINT payment_method_account_mode FOREIGN KEY (account_id, livemode) REFERENCES public.provider_account(id, livemode);
ALTER TABLE ONLY public.payment_method
    ADD CONSTRAINT payment_method_merchant_id_fkey FOREIGN KEY (merchant_id) REFERENCES public.merchant(id);
ALTER TABLE ONLY public.payment_method
    ADD CONSTRAINT payment_method_merchant_mode FOREIGN KEY (merchant_id, livemode) REFERENCES public.merchant(id, livemode);
ALTER TABLE ONLY public.payment
    ADD CONSTRAINT payment_session FOREIGN KEY (session_id) REFERENCES public.session(id);
ALTER TABLE ONLY public.payout
    ADD CONSTRAINT payout_merchant_id_fkey FOREIGN KEY (merchant_id) REFERENCES public.merchant(id);
ALTER TABLE ONLY public.provider_account
    ADD CONSTRAINT provider_account_merchant_id_fkey FOREIGN KEY (merchant_id) REFERENCES public.merchant(id);
ALTER TABLE ONLY public.provider_account
    ADD CONSTRAINT provider_account_mode FOREIGN KEY (merchant_id, livemode) REFERENCES public.merchant(id, livemode);
ALTER TABLE ONLY public.provider_account
    ADD CONSTRAINT provider_account_provider FOREIGN KEY (provider) REFERENCES public.provider(name);
ALTER TABLE ONLY public.rate_limit
    ADD CONSTRAINT rate_limit_merchant_id_fkey FOREIGN KEY (merchant_id) REFERENCES public.merchant(id);
ALTER TABLE ONLY public.reconciliation_balance
    ADD CONSTRAINT reconciliation_balance_run_id_fkey FOREIGN KEY (run_id) REFERENCES public.reconciliation_run(id);
ALTER TABLE ONLY public.reconciliation_blocks
    ADD CONSTRAINT reconciliation_blocks_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.chain_contract(account_id);
ALTER TABLE ONLY public.reconciliation_blocks
    ADD CONSTRAINT reconciliation_blocks_run_id_fkey FOREIGN KEY (run_id) REFERENCES public.reconciliation_run(id);
ALTER TABLE ONLY public.reconciliation_file
    ADD CONSTRAINT reconciliation_file_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.provider_account(id);
ALTER TABLE ONLY public.reconciliation_file
    ADD CONSTRAINT reconciliation_file_run_id_fkey FOREIGN KEY (run_id) REFERENCES public.reconciliation_run(id);
ALTER TABLE ONLY public.reconciliation_run
    ADD CONSTRAINT reconciliation_run_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.provider_account(id);
ALTER TABLE ONLY public.reconciliation_sum
    ADD CONSTRAINT reconciliation_sum_run_id_fkey FOREIGN KEY (run_id) REFERENCES public.reconciliation_run(id);
ALTER TABLE ONLY public.refund
    ADD CONSTRAINT refund_capture_id_fkey FOREIGN KEY (capture_id) REFERENCES public.capture(id);
ALTER TABLE ONLY public.refund
    ADD CONSTRAINT refund_case_id_fkey FOREIGN KEY (case_id) REFERENCES public.money_case(id);
ALTER TABLE ONLY public.refund
    ADD CONSTRAINT refund_payment_id_fkey FOREIGN KEY (payment_id) REFERENCES public.payment(id);
ALTER TABLE ONLY public.session
    ADD CONSTRAINT session_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.provider_account(id);
ALTER TABLE ONLY public.session
    ADD CONSTRAINT session_payment_id_fkey FOREIGN KEY (payment_id) REFERENCES public.payment(id);
ALTER TABLE ONLY public.session
    ADD CONSTRAINT session_payment_method_id_fkey FOREIGN KEY (payment_method_id) REFERENCES public.payment_method(id);
ALTER TABLE ONLY public.statement_close
    ADD CONSTRAINT statement_close_merchant_id_fkey FOREIGN KEY (merchant_id) REFERENCES public.merchant(id);
ALTER TABLE ONLY public.statement
    ADD CONSTRAINT statement_merchant_id_fkey FOREIGN KEY (merchant_id) REFERENCES public.merchant(id);
ALTER TABLE ONLY public.test_clock
    ADD CONSTRAINT test_clock_mode FOREIGN KEY (merchant_id, livemode) REFERENCES public.merchant(id, livemode);
ALTER TABLE ONLY public.test_refund
    ADD CONSTRAINT test_refund_session FOREIGN KEY (session_id) REFERENCES public.test_session(session_id);
ALTER TABLE ONLY public.test_session
    ADD CONSTRAINT test_session_mode FOREIGN KEY (account_id, livemode) REFERENCES public.provider_account(id, livemode);
