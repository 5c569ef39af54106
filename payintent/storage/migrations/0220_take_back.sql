-- What a restore of control has lost of the copied tables is taken back from a cell (decision 127).
-- Then the setting payintent.copied_by is 'take-back': rows are written into control's own tables as
-- they are, and it is a change of control like any other. When control changed last says whether
-- it was changed after a cell's copies were made.
ALTER TABLE configuration_version ADD COLUMN changed_at timestamptz;

CREATE OR REPLACE FUNCTION note_change() RETURNS trigger
LANGUAGE plpgsql SET timezone = 'UTC' AS $$
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

CREATE OR REPLACE FUNCTION market_changed() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(current_setting('payintent.copied_by', true), '') NOT IN ('copier', 'take-back') THEN
        NEW.market_changed_at = clock();
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE FUNCTION cell_step() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(current_setting('payintent.copied_by', true), '') NOT IN ('copier', 'take-back')
        AND (OLD.state, NEW.state) NOT IN (('adding', 'open'), ('adding', 'closed'),
            ('open', 'draining'), ('draining', 'open'), ('draining', 'closed')) THEN
        RAISE EXCEPTION 'cell % does not go from % to %', NEW.number, OLD.state, NEW.state
            USING ERRCODE = 'check_violation', CONSTRAINT = 'cell_step';
    END IF;
    RETURN NEW;
END $$;

-- Who writes: the copier, unless rows are taken back.
CREATE FUNCTION copies_begin() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('payintent.copied_by', true) IS DISTINCT FROM 'take-back' THEN
        PERFORM set_config('payintent.copied_by', 'copier', true);
    END IF;
END $$;

-- Inserts and updates what differs; gives how many rows that were.
CREATE OR REPLACE FUNCTION copy_rows(of_table text, given jsonb) RETURNS bigint
LANGUAGE plpgsql AS $$
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
END $$;

-- Deletes what control has not: of the keys `changed`, or of the whole table, all but `kept`. Where
-- there is nothing to delete it needs no right to.
CREATE OR REPLACE FUNCTION drop_copies(of_table text, changed jsonb, kept jsonb) RETURNS bigint
LANGUAGE plpgsql AS $$
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
END $$;
