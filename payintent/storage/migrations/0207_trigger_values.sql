-- What these triggers write is computed before the statement that writes it: a node of a Citus cluster
-- refuses an UPDATE with a function whose value is another one each time.
CREATE OR REPLACE FUNCTION change_configuration_version() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    changed uuid := gen_random_uuid();
BEGIN
    IF current_setting('payintent.copied_by', true) IS DISTINCT FROM 'copier' THEN
        UPDATE configuration_version
        SET version = changed;
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION note_change() RETURNS trigger
LANGUAGE plpgsql SET timezone = 'UTC' AS $$
DECLARE
    noted bigint := nullif(current_setting('payintent.change', true), '');
    changed uuid := gen_random_uuid();
BEGIN
    IF current_setting('payintent.copied_by', true) = 'copier'
        OR EXISTS (SELECT FROM installation WHERE cell <> 0) THEN
        RETURN NULL;
    END IF;
    IF noted IS NULL THEN
        UPDATE configuration_version
        SET number = number + 1, token = changed
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
