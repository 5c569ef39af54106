-- concurrently: each statement by itself, so that payments go on being made meanwhile
CREATE INDEX CONCURRENTLY IF NOT EXISTS chain_receipt_block ON chain_receipt (account_id, block);
CREATE INDEX CONCURRENTLY IF NOT EXISTS chain_refund_block ON chain_refund (account_id, block);
