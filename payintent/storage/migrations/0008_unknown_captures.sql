-- Money that a gateway has taken for a session that nobody knows is kept with the callback that told.
ALTER TABLE capture
    ADD COLUMN callback_id text,
    ADD CONSTRAINT capture_callback FOREIGN KEY (account_id, callback_id)
        REFERENCES callback NOT VALID,
    DROP CONSTRAINT capture_known,
    ADD CONSTRAINT capture_known
        CHECK (num_nonnulls(session_id, receipt_id, callback_id) > 0) NOT VALID;
ALTER TABLE money_case
    DROP CONSTRAINT money_case_about,
    ADD CONSTRAINT money_case_about CHECK (
        num_nonnulls(session_id, receipt_id, refund_id, subject, capture_id) > 0
    ) NOT VALID;

-- What waits for its session and says captured, of the last day, becomes a case as well.
INSERT INTO capture (id, account_id, reference, currency, amount_minor, credited, captured_at,
    callback_id)
SELECT DISTINCT ON (c.account_id, c.report ->> 'reference') gen_random_uuid(), c.account_id,
    c.report ->> 'reference', c.report ->> 'currency', (c.report ->> 'amount_minor')::numeric,
    false, c.received_at, c.callback_id
FROM callback c
WHERE c.applied_at IS NULL AND c.report ->> 'state' = 'captured'
    AND c.report ->> 'reference' IS NOT NULL
ORDER BY c.account_id, c.report ->> 'reference', c.received_at
ON CONFLICT ON CONSTRAINT capture_reference DO NOTHING;
INSERT INTO money_case (id, kind, merchant_id, capture_id, opened_at)
SELECT gen_random_uuid(), 'UNKNOWN_REFERENCE', a.merchant_id, c.id, clock()
FROM capture c
JOIN provider_account a ON a.id = c.account_id
WHERE c.callback_id IS NOT NULL;
