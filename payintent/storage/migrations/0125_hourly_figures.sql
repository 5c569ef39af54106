-- What happened in each hour, counted by a worker, so that no page counts payments: each kind of
-- thing by currency, and the ends of payments by method and by country too ('': none was selected).
CREATE TABLE hourly_figure (
    hour timestamptz NOT NULL,
    subject text NOT NULL CONSTRAINT hourly_figure_subject
        CHECK (subject IN ('currency', 'method', 'country')),
    kind text NOT NULL CONSTRAINT hourly_figure_kind CHECK (kind IN (
        'PAID', 'FAILED', 'EXPIRED', 'CANCELLED', 'REFUNDED', 'DISPUTED', 'DELIVERED', 'UNDELIVERED'
    )),
    value text NOT NULL,      -- of the subject
    count bigint NOT NULL,
    amount numeric NOT NULL,  -- by currency, in its units; of disputes in its smallest ones
    PRIMARY KEY (hour, subject, kind, value)
);

-- Hours before `closed_until` were counted once more after all their transactions had ended.
CREATE TABLE figure_mark (
    only_row boolean PRIMARY KEY DEFAULT true CONSTRAINT figure_mark_only_row CHECK (only_row),
    counted_until timestamptz NOT NULL,
    closed_until timestamptz NOT NULL
);
-- Counting begins 30 days ago, or with the first payment.
INSERT INTO figure_mark (counted_until, closed_until)
SELECT hour, hour
FROM (
    SELECT date_bin('1 hour', greatest(clock() - interval '30 days', coalesce(first, clock())),
            '2000-01-01 00:00:00+00') AS hour
    FROM (SELECT (SELECT created_at FROM payment ORDER BY id LIMIT 1) AS first) oldest
) begun;
