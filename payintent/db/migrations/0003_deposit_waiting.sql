-- concurrently
CREATE INDEX CONCURRENTLY IF NOT EXISTS chain_receipt_uncaptured ON chain_receipt (session_id)
    WHERE disposition = 'deposit' AND deposit_capture_id IS NULL;
