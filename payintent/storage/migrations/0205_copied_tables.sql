-- Copies of what operators set up, for cells beside cell 0 (decision 120). Control numbers its
-- changes and notes what each has changed; a cell says of which number its copies are. One setting
-- of a transaction, payintent.copied_by, says who writes a copied table: the copier or a migration.
ALTER TABLE configuration_version
    ADD COLUMN number bigint NOT NULL DEFAULT 0,
    ADD COLUMN token uuid NOT NULL DEFAULT gen_random_uuid();

-- What each change has touched, in control, where there is another cell. The token of a number
-- tells the history that a cell's copies come from from one that a restore began.
CREATE TABLE configuration_change (
    number bigint NOT NULL,
    table_name text NOT NULL,
    key jsonb NOT NULL,
    token uuid NOT NULL,
    PRIMARY KEY (number, table_name, key)
);

-- Of which number of control a cell's copies are; none where nothing was copied yet. `made_as` is
-- by which schemas: another one needs whole copies.
CREATE TABLE configuration_copy (
    only_row boolean PRIMARY KEY DEFAULT true
        CONSTRAINT configuration_copy_only_row CHECK (only_row),
    number bigint,
    token uuid,
    made_as text NOT NULL DEFAULT '',
    copied_at timestamptz,
    CONSTRAINT configuration_copy_token CHECK ((number IS NULL) = (token IS NULL))
);
INSERT INTO configuration_copy DEFAULT VALUES;

-- Deferred: numbers are given under the lock of one row, which is held for the commit alone. So
-- whoever sees a number sees all that is below it. A transaction has one number. Keys are written
-- in one way, whatever the time zone of who changes a row.
CREATE FUNCTION note_change() RETURNS trigger
LANGUAGE plpgsql SET timezone = 'UTC' AS $$
DECLARE
    noted bigint := nullif(current_setting('payintent.change', true), '');
BEGIN
    IF current_setting('payintent.copied_by', true) = 'copier'
        OR EXISTS (SELECT FROM installation WHERE cell <> 0) THEN
        RETURN NULL;
    END IF;
    IF noted IS NULL THEN
        UPDATE configuration_version
        SET number = number + 1, token = gen_random_uuid()
        RETURNING number INTO noted;
        PERFORM set_config('payintent.change', noted::text, true);
        DELETE FROM configuration_change
        WHERE number <= noted - 10000;
    END IF;
    -- After the number: who adds the first cell has one too, so that it is seen here or comes later.
    IF EXISTS (SELECT FROM cell WHERE number <> 0) THEN
        INSERT INTO configuration_change (number, table_name, key, token)
        SELECT noted, TG_TABLE_NAME, jsonb_object_agg(name, changed -> name), v.token
        FROM configuration_version v,
            unnest(ARRAY[to_jsonb(OLD), to_jsonb(NEW)]) WITH ORDINALITY AS r (changed, side),
            unnest(TG_ARGV) AS name
        WHERE changed IS NOT NULL
        GROUP BY side, v.token
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION copied_only() RETURNS trigger
LANGUAGE plpgsql AS $$
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

-- A copy has control's own times, and its version changes once for all that was copied together.
CREATE OR REPLACE FUNCTION market_changed() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('payintent.copied_by', true) IS DISTINCT FROM 'copier' THEN
        NEW.market_changed_at = clock();
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION change_configuration_version() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('payintent.copied_by', true) IS DISTINCT FROM 'copier' THEN
        UPDATE configuration_version
        SET version = gen_random_uuid();
    END IF;
    RETURN NULL;
END $$;

DO $$
DECLARE
    copied record;
    updates text;
BEGIN
    FOR copied IN
        SELECT * FROM (VALUES
            ('api_key', 'public_id'), ('callback_secret', 'id'), ('cell', 'number'),
            ('chain', 'slug'), ('chain_contract', 'account_id'), ('chain_token', 'chain symbol'),
            ('fraud_rule', 'id'), ('merchant', 'id'), ('merchant_cell', 'merchant_id since'),
            ('payment_method', 'id'), ('provider', 'name'), ('provider_account', 'id'),
            ('rate_limit', 'merchant_id class'), ('restriction', 'type country'),
            ('ring_key', 'name'), ('tax_rate', 'country')
        ) AS t (name, key)
    LOOP
        -- When a key was used last is written with its uses, and is not copied.
        updates := CASE copied.name WHEN 'api_key' THEN
            'UPDATE OF public_id, merchant_id, name, digest, created_at, revoked_at, livemode'
            ELSE 'UPDATE' END;
        EXECUTE format(
            'CREATE TRIGGER copied_only BEFORE INSERT OR DELETE OR TRUNCATE OR %s ON %I '
            'FOR EACH STATEMENT EXECUTE FUNCTION copied_only()', updates, copied.name);
        EXECUTE format(
            'CREATE CONSTRAINT TRIGGER note_change AFTER INSERT OR DELETE OR %s ON %I '
            'DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_change(%s)',
            updates, copied.name,
            (SELECT string_agg(quote_literal(part), ', ')
            FROM regexp_split_to_table(copied.key, ' ') AS part));
    END LOOP;
END $$;
