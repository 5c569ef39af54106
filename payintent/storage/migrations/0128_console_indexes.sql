-- concurrently: each statement by itself, so that payments go on being made meanwhile
-- By what an operator searches besides: a payer's e-mail, and the address on a chain that paid.
CREATE INDEX CONCURRENTLY IF NOT EXISTS payment_email ON payment USING hash (lower(payer_email));
CREATE INDEX CONCURRENTLY IF NOT EXISTS chain_receipt_payer ON chain_receipt USING hash (payer);
-- Queues of the console, newest first.
CREATE INDEX CONCURRENTLY IF NOT EXISTS delivery_missed_state ON delivery (state, merchant_id, event_id)
WHERE state IN ('dead', 'skipped');
CREATE INDEX CONCURRENTLY IF NOT EXISTS refund_merchant ON refund (merchant_id, id) WHERE merchant_id IS NOT NULL;
CREATE INDEX CONCURRENTLY IF NOT EXISTS dispute_running ON dispute (id)
WHERE state IN ('inquiry', 'open', 'under_review');
