-- concurrently: each statement by itself, so that payments go on being made meanwhile
CREATE INDEX CONCURRENTLY IF NOT EXISTS dispute_reinstated ON dispute (updated_at)
    WHERE funds = 'reinstated';
