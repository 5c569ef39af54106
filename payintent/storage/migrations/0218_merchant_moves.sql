-- A merchant's move to another cell (decision 121). Its new place is there before it is opened:
-- until then its creates wait. A place that was never opened is not closed either.
ALTER TABLE merchant_cell
    ADD COLUMN opened_at timestamptz DEFAULT clock(),
    ADD CONSTRAINT merchant_cell_opened CHECK (until IS NULL OR opened_at IS NOT NULL);

-- The lock that creates of a merchant share in a cell. Cells may be schemas of one database.
CREATE FUNCTION merchant_place_lock(of_merchant bigint, of_cell int) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN hashtextextended('merchant place ' || of_cell || ' ' || of_merchant, 0);

-- Whether a create may be written in this cell, for who knows the merchant's place as that which
-- began at `place_since` (null: no place, so cell 0). It must be volatile: it looks after it has the
-- lock, with a snapshot of its own, so that who had to wait for the lock alone is waited for.
CREATE FUNCTION takes_creates(of_merchant bigint, of_cell int, place_since timestamptz)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
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

-- A cell that is being added has no copies yet. Its state goes these ways alone; a copy follows
-- control, and may come later by two steps.
ALTER TABLE cell
    DROP CONSTRAINT cell_state,
    ADD CONSTRAINT cell_state CHECK (state IN ('adding', 'open', 'draining', 'closed')),
    ADD CONSTRAINT cell_control CHECK (number <> 0 OR state = 'open');

CREATE FUNCTION cell_step() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('payintent.copied_by', true) IS DISTINCT FROM 'copier'
        AND (OLD.state, NEW.state) NOT IN (('adding', 'open'), ('adding', 'closed'),
            ('open', 'draining'), ('draining', 'open'), ('draining', 'closed')) THEN
        RAISE EXCEPTION 'cell % does not go from % to %', NEW.number, OLD.state, NEW.state
            USING ERRCODE = 'check_violation', CONSTRAINT = 'cell_step';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER cell_step BEFORE UPDATE OF state ON cell
FOR EACH ROW WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION cell_step();
