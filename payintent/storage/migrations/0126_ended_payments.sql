-- concurrently: each statement by itself, so that payments go on being made meanwhile
-- When payments ended and disputes began, for the figures of each hour.
CREATE INDEX CONCURRENTLY IF NOT EXISTS payment_ended
ON payment (coalesce(paid_at, failed_at, expired_at, cancelled_at))
WHERE status NOT IN ('PENDING', 'PROCESSING');
CREATE INDEX CONCURRENTLY IF NOT EXISTS dispute_created ON dispute (created_at);
-- The oldest payment under way.
CREATE INDEX CONCURRENTLY IF NOT EXISTS payment_processing ON payment (created_at)
WHERE status = 'PROCESSING';
