-- A callback URL that a member has set must not lead into the operator's networks.
ALTER TABLE merchant
    ADD COLUMN callback_by_member boolean NOT NULL DEFAULT false,
    ADD CONSTRAINT merchant_callback_by_member CHECK (NOT (callback_by_member AND livemode)) NOT VALID;

-- Members change only test merchants. The audit entry of a change is written in the same
-- transaction, so rejecting the entry rejects the change.
CREATE FUNCTION audit_member_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF EXISTS (SELECT FROM merchant WHERE id = NEW.merchant_id AND livemode) THEN
        RAISE EXCEPTION 'members change only the test side'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'audit_member_change';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER audit_member_change BEFORE INSERT ON audit
    FOR EACH ROW
    WHEN (NEW.who LIKE 'merchant:%'
        AND (NEW.action IN ('merchant.profile', 'merchant.set-callback-url', 'merchant.rotate-secret')
            OR (NEW.action = 'key.issue' AND NEW.details ->> 'test' IS DISTINCT FROM 'true')))
    EXECUTE FUNCTION audit_member_change();
