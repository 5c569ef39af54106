-- concurrently: each statement by itself, so that payments go on being made meanwhile
-- What retention has not taken yet (decision 95). A payment has its entry from its end on.
CREATE INDEX CONCURRENTLY IF NOT EXISTS payment_details ON payment
(coalesce(paid_at, failed_at, expired_at, cancelled_at))
WHERE status NOT IN ('PENDING', 'PROCESSING') AND (payer_email IS NOT NULL OR metadata::text <> '{}');
CREATE INDEX CONCURRENTLY IF NOT EXISTS chain_receipt_address ON chain_receipt (final_at) WHERE payer IS NOT NULL;
