-- concurrently: each statement by itself, so that payments go on being made meanwhile
ALTER TABLE event VALIDATE CONSTRAINT event_feed_position;
CREATE INDEX CONCURRENTLY IF NOT EXISTS event_unnumbered ON event (merchant_id, id)
WHERE feed_position IS NULL;
CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS event_feed_order ON event (merchant_id, feed_position)
WHERE feed_position IS NOT NULL;
CREATE INDEX CONCURRENTLY IF NOT EXISTS refund_updated ON refund (merchant_id, updated_at, id)
WHERE merchant_id IS NOT NULL;
