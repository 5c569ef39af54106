-- What is stated stays stated: how far a merchant's days are closed only ever moves on. A worker
-- that looked earlier than another must not move it back, or entries would be stated twice.
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
