-- concurrently: each statement by itself, so that payments go on being made meanwhile
-- By what an operator searches. Hash indexes take texts of any length, and skip NULL.
CREATE INDEX CONCURRENTLY IF NOT EXISTS payment_order ON payment USING hash (payment_order_id(metadata));
CREATE INDEX CONCURRENTLY IF NOT EXISTS session_reference ON session USING hash (reference);
CREATE INDEX CONCURRENTLY IF NOT EXISTS chain_hint_tx ON chain_hint USING hash (tx_hash);
CREATE INDEX CONCURRENTLY IF NOT EXISTS chain_refund_try_tx ON chain_refund_try USING hash (tx_hash);
-- What happened to one payment.
CREATE INDEX CONCURRENTLY IF NOT EXISTS callback_session ON callback (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX CONCURRENTLY IF NOT EXISTS callback_refund ON callback (refund_id) WHERE refund_id IS NOT NULL;
CREATE INDEX CONCURRENTLY IF NOT EXISTS money_case_payment ON money_case (payment_id) WHERE payment_id IS NOT NULL;
-- What did not arrive, to count and to send again.
CREATE INDEX CONCURRENTLY IF NOT EXISTS delivery_missed ON delivery (merchant_id, event_id)
WHERE state IN ('dead', 'skipped');
