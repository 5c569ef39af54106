-- concurrently: each statement by itself, so that payments go on being made meanwhile
-- The merchant portal lists the refunds of one merchant's payments, newest first.
CREATE INDEX CONCURRENTLY IF NOT EXISTS refund_merchant ON refund (merchant_id, id)
WHERE payment_id IS NOT NULL;
