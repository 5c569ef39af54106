-- What writes copies (decision 120). They find columns and keys in the catalog, since a cell may
-- lack a new column of control for a while.
CREATE FUNCTION copied_columns(target regclass, given jsonb)
RETURNS TABLE (name text, is_key boolean, is_unique boolean)
LANGUAGE sql STABLE AS $$
    SELECT quote_ident(a.attname), bool_or(coalesce(i.indisprimary, false)),
        bool_or(i.indexrelid IS NOT NULL)
    FROM pg_attribute a
    LEFT JOIN pg_index i
        ON i.indrelid = a.attrelid AND i.indisunique AND i.indpred IS NULL
            AND a.attnum = ANY (i.indkey)
    WHERE a.attrelid = target AND a.attnum > 0 AND NOT a.attisdropped AND given ? a.attname
    GROUP BY a.attname
$$;

-- Inserts and updates what differs; gives how many rows that were.
CREATE FUNCTION copy_rows(of_table text, given jsonb) RETURNS bigint
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
    PERFORM set_config('payintent.copied_by', 'copier', true);
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
CREATE FUNCTION drop_copies(of_table text, changed jsonb, kept jsonb) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    target regclass := quote_ident(of_table)::regclass;
    gone text;
    is_needed boolean;
    dropped bigint := 0;
BEGIN
    PERFORM set_config('payintent.copied_by', 'copier', true);
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
