-- concurrently
CREATE INDEX CONCURRENTLY IF NOT EXISTS chain_receipt_uncaptured ON chain_receipt (session_id)
    WHERE disposition = 'deposit' AND deposit_capture_id IS NULL;
CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS capture_of_receipt
    ON capture (receipt_id, (reference LIKE 'surplus:%')) WHERE receipt_id IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS capture_receipt;
CREATE INDEX CONCURRENTLY IF NOT EXISTS chain_receipt_unswept ON chain_receipt (chain, session_id)
    WHERE disposition = 'deposit' AND deposit_sweep_id IS NULL;
CREATE INDEX CONCURRENTLY IF NOT EXISTS chain_receipt_swept ON chain_receipt (deposit_sweep_id)
    WHERE deposit_sweep_id IS NOT NULL;
