-- concurrently
-- Retention of payer details also clears the return URLs.
CREATE INDEX CONCURRENTLY IF NOT EXISTS payment_payer_details
    ON payment (coalesce(paid_at, failed_at, expired_at, cancelled_at))
    WHERE status NOT IN ('PENDING', 'PROCESSING')
        AND (payer_email IS NOT NULL OR metadata::text <> '{}'
            OR return_url IS NOT NULL OR cancel_url IS NOT NULL);
DROP INDEX CONCURRENTLY IF EXISTS payment_details;
