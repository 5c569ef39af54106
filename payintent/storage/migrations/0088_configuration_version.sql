-- Says which version of merchants, methods, accounts, tokens, tax rates and shown catalogs is in
-- force. A process keeps what it has read of them while the version stays the same. A version is
-- random, so that none comes again, not even after a failover or a restore.
CREATE TABLE configuration_version (
    only_row boolean PRIMARY KEY DEFAULT true
        CONSTRAINT configuration_version_only_row CHECK (only_row),
    version uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO configuration_version DEFAULT VALUES;

CREATE FUNCTION change_configuration_version() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE configuration_version
    SET version = gen_random_uuid();
    RETURN NULL;
END $$;

-- Deferred: the row is locked for the commit alone, after every other lock of a transaction.
CREATE CONSTRAINT TRIGGER configuration_version AFTER INSERT OR UPDATE OR DELETE ON merchant
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION change_configuration_version();
CREATE CONSTRAINT TRIGGER configuration_version AFTER INSERT OR UPDATE OR DELETE ON payment_method
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION change_configuration_version();
CREATE CONSTRAINT TRIGGER configuration_version AFTER INSERT OR UPDATE OR DELETE ON provider
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION change_configuration_version();
CREATE CONSTRAINT TRIGGER configuration_version AFTER INSERT OR UPDATE OR DELETE ON provider_account
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION change_configuration_version();
CREATE CONSTRAINT TRIGGER configuration_version AFTER INSERT OR UPDATE OR DELETE ON chain_token
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION change_configuration_version();
CREATE CONSTRAINT TRIGGER configuration_version AFTER INSERT OR UPDATE OR DELETE ON tax_rate
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION change_configuration_version();
CREATE CONSTRAINT TRIGGER configuration_version AFTER INSERT OR UPDATE OR DELETE ON catalog_shown
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION change_configuration_version();
