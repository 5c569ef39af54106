-- concurrently
-- Refunds that wait for an address are listed like those that wait for approval.
CREATE INDEX CONCURRENTLY IF NOT EXISTS refund_undecided
    ON refund (step, id)
    WHERE step IN ('address', 'approval');
DROP INDEX CONCURRENTLY IF EXISTS refund_waiting;
