-- Gateways' files may lie in an S3-compatible store too (decision 107).
ALTER TABLE reconciliation_run DROP CONSTRAINT reconciliation_run_source;
ALTER TABLE reconciliation_run ADD CONSTRAINT reconciliation_run_source
    CHECK (source IN ('folder', 's3')) NOT VALID;
ALTER TABLE reconciliation_run VALIDATE CONSTRAINT reconciliation_run_source;
