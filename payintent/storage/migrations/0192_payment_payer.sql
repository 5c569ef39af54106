-- concurrently: each statement by itself, so that payments go on being made meanwhile
-- Payments whose payer retention has not taken yet (decision 97): each has its entry from its end on.
CREATE INDEX CONCURRENTLY IF NOT EXISTS payment_payer ON payment
(coalesce(paid_at, failed_at, expired_at, cancelled_at))
WHERE status NOT IN ('PENDING', 'PROCESSING') AND payer_uid <> '(erased)';
