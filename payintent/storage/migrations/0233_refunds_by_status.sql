-- concurrently: each statement by itself, so that refunds go on being made meanwhile
CREATE INDEX CONCURRENTLY IF NOT EXISTS refund_status
ON refund (merchant_id, status, updated_at, id) WHERE merchant_id IS NOT NULL;
