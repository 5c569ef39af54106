-- Makes the schema that a connection is in (search_path) a distributed schema of a Citus cluster, on
-- a node of its own. Run it once, after `payintent migrate` has made the tables there:
--
--   psql "postgresql://…/payintent?options=-csearch_path%3Dcell_1" -f deploy/citus/distribute.sql
--
-- Triggers are made again afterwards, on the node. Those of statements (`copied_only`) do not run
-- there: nothing but the service may write to the schema.
DO $$
DECLARE
    place name := current_schema();
    made text[];
    dropped text[];
    step text;
BEGIN
    PERFORM set_config('citus.enable_unsafe_triggers', 'on', true);
    -- `citus_schema_move` refuses a schema with an UNLOGGED table, or with one whose rows have no name.
    FOR step IN
        SELECT c.oid::regclass::text
        FROM pg_class c
        WHERE c.relnamespace = place::regnamespace AND c.relkind = 'r' AND c.relpersistence = 'u'
    LOOP
        EXECUTE format('ALTER TABLE %s SET LOGGED', step);
    END LOOP;
    FOR step IN
        SELECT c.oid::regclass::text
        FROM pg_class c
        WHERE c.relnamespace = place::regnamespace AND c.relkind = 'r'
            AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)
    LOOP
        EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', step);
    END LOOP;
    SELECT array_agg(pg_get_triggerdef(t.oid)),
        array_agg(format('DROP TRIGGER %I ON %s', t.tgname, t.tgrelid::regclass))
    INTO made, dropped
    FROM pg_trigger t
    JOIN pg_class c ON c.oid = t.tgrelid
    WHERE c.relnamespace = place::regnamespace AND NOT t.tgisinternal;
    FOREACH step IN ARRAY dropped LOOP
        EXECUTE step;
    END LOOP;
    -- On a node a trigger runs with the path of whoever sent the statement.
    FOR step IN
        SELECT p.oid::regprocedure::text
        FROM pg_proc p
        WHERE p.pronamespace = place::regnamespace AND p.prorettype = 'trigger'::regtype
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', step, place);
    END LOOP;
    PERFORM citus_schema_distribute(place::regnamespace);
    FOREACH step IN ARRAY made LOOP
        EXECUTE step;
    END LOOP;
END $$;
