-- Write a batch. Each table is filled by an INSERT from `seed_payment`, which has a row for each
-- payment of the batch. All constraints and triggers apply.

-- Of a hundred payments, 64 are paid (6 of them are refunded in part or in full), 6 have failed,
-- 18 have expired (half of them after a method was selected), and 12 are cancelled.
CREATE TEMPORARY TABLE seed_payment ON COMMIT DROP AS
SELECT n, m.*, kind.status, kind.with_session, made.created_at, made.expires_at,
    amount, (amount * 100)::bigint AS minor,
    CASE kind.status WHEN 'REFUNDED' THEN amount WHEN 'PARTIALLY_REFUNDED' THEN amount - 1
        ELSE 0 END AS refunded,
    CASE WHEN kind.status IN ('PAID', 'REFUNDED', 'PARTIALLY_REFUNDED', 'FAILED')
            THEN made.created_at + (40 + pg_temp.chance(n, 5, 300)) * interval '1 second'
        WHEN kind.status = 'CANCELLED' THEN made.created_at + interval '3 minutes'
        WHEN kind.status = 'EXPIRED' THEN made.expires_at + interval '1 second' END AS ended_at,
    (ARRAY['USD', 'THB'])[1 + pg_temp.chance(n, 6, 2)] AS currency,
    'buyer-' || pg_temp.chance(n, 7, b.payments / 5 + 1) AS payer_uid,
    pg_temp.timed_id(made.created_at) AS payment_id, 'cs_' || left(md5(gen_random_uuid()::text), 16)
        AS checkout_id,
    CASE WHEN kind.with_session THEN pg_temp.opaque_id() END AS session_id,
    gen_random_uuid()::text AS callback_id,
    CASE WHEN kind.with_session THEN 'pi_' || md5(gen_random_uuid()::text) END AS reference
FROM seed_batch b
CROSS JOIN generate_series(b.first, b.last) AS n
CROSS JOIN LATERAL (
    SELECT at AS created_at, at + CASE WHEN n > b.payments - b.still_open THEN interval '1 day'
        ELSE interval '15 minutes' END AS expires_at
    FROM (
        SELECT date_trunc('milliseconds', CASE
            WHEN n > b.payments - b.still_open THEN
                b.now - (b.payments - n + 1) * interval '20 minutes' / (b.still_open + 1)
            ELSE b.since
                + (b.now - interval '20 minutes' - b.since) * n / (b.payments - b.still_open + 1)
            END) AS at
    ) one
) made
CROSS JOIN LATERAL (
    SELECT status, status NOT IN ('PENDING', 'CANCELLED')
        AND (status <> 'EXPIRED' OR pg_temp.chance(n, 2, 2) = 0) AS with_session
    FROM (
        SELECT CASE WHEN n > b.payments - b.still_open THEN (ARRAY['PENDING', 'PROCESSING'])[1 + n % 2]
            WHEN one < 58 THEN 'PAID' WHEN one < 61 THEN 'PARTIALLY_REFUNDED'
            WHEN one < 64 THEN 'REFUNDED' WHEN one < 70 THEN 'FAILED'
            WHEN one < 88 THEN 'EXPIRED' ELSE 'CANCELLED' END AS status
        FROM pg_temp.chance(n, 1, 100) AS one
    ) decided
) kind
CROSS JOIN LATERAL (
    SELECT * FROM seed_merchant WHERE share_end > pg_temp.chance(n, 3, 100) ORDER BY share_end LIMIT 1
) m
CROSS JOIN LATERAL (SELECT 5 + pg_temp.chance(n, 4, 20000)::numeric / 100 AS amount) priced;
ANALYZE seed_payment;

-- A payment and its session reference each other, so a single statement inserts both.
WITH sessions AS (
    INSERT INTO session
        (id, payment_id, account_id, payment_method_id, provider, provider_name, life, outcome,
         kind, label, country, currency, amount, fee_mode, fee_rate, fee_amount, estimated_tax,
         total_amount, total_minor, reference, inquire_at, opened_at, ended_at, number)
    SELECT session_id, payment_id, account_id, payment_method_id, provider, provider_name,
        CASE status WHEN 'PROCESSING' THEN 'open' ELSE 'ended' END,
        CASE status WHEN 'PROCESSING' THEN NULL WHEN 'FAILED' THEN 'declined'
            WHEN 'EXPIRED' THEN 'closed' ELSE 'captured' END,
        kind, label, 'TH', currency, amount::numeric(12, 2)::text, fee_mode, trim_scale(fee_rate)::text,
        round(amount * fee_rate, 2)::text, '0', amount::numeric(12, 2)::text, minor, reference,
        CASE status WHEN 'PROCESSING' THEN expires_at END, created_at + interval '30 seconds',
        ended_at, 1
    FROM seed_payment
    WHERE with_session
)
INSERT INTO payment
    (id, merchant_id, checkout_id, status, version, currency, amount, amount_text, payer_uid,
     payer_email, include_pegged_assets, metadata, tax_manager, session_id, receipt_id,
     failure_reason, refunded_amount, expires_at, paid_at, failed_at, expired_at, cancelled_at,
     created_at, updated_at)
SELECT payment_id, merchant_id, checkout_id, status,
    CASE WHEN refunded > 0 THEN 4 WHEN status = 'PENDING' THEN 1
        ELSE 1 + (with_session)::int + (status <> 'PROCESSING')::int END,
    currency, amount, amount::numeric(12, 2)::text, payer_uid,
    CASE WHEN n % 3 = 0 THEN payer_uid || '@example.com' END, true,
    format('{"order_id":"A-%s","cart":"%s"}', n, left(callback_id, 8))::json, 'NONE', session_id,
    CASE WHEN receipt THEN pg_temp.timed_id(ended_at) END,
    CASE status WHEN 'FAILED' THEN 'DECLINED' END, refunded, expires_at,
    CASE WHEN receipt THEN ended_at END, CASE status WHEN 'FAILED' THEN ended_at END,
    CASE status WHEN 'EXPIRED' THEN ended_at END, CASE status WHEN 'CANCELLED' THEN ended_at END,
    created_at, coalesce(ended_at, created_at)
FROM (
    SELECT *, status IN ('PAID', 'PARTIALLY_REFUNDED', 'REFUNDED') AS receipt
    FROM seed_payment
) s;

INSERT INTO checkout (id, payment_id)
SELECT checkout_id, payment_id
FROM seed_payment;

-- Idempotency keys are deleted after a day.
INSERT INTO idempotency
    (merchant_id, operation, key, request_hash, payment_id, country, created_at)
SELECT merchant_id, 'create', gen_random_uuid(), sha256(callback_id::bytea), payment_id, NULL,
    created_at
FROM seed_payment
WHERE created_at > clock() - interval '1 day';

INSERT INTO callback (account_id, callback_id, session_id, report, body, received_at, applied_at)
SELECT account_id, callback_id, session_id, NULL,
    CASE WHEN ended_at > clock() - interval '30 days' THEN convert_to(format(
        '{"session":"%s","status":"%s"}', reference, lower(status)), 'UTF8') END,
    ended_at, ended_at
FROM seed_payment
WHERE with_session AND status NOT IN ('PROCESSING', 'EXPIRED');

-- One in forty expired sessions is paid too late, which opens a case.
INSERT INTO capture
    (id, account_id, reference, session_id, payment_id, currency, amount_minor, credited,
     refunded_minor, captured_at, callback_id)
SELECT pg_temp.timed_id(ended_at), account_id, reference, session_id, payment_id, currency, minor,
    status <> 'EXPIRED', (refunded * 100)::bigint, ended_at,
    CASE WHEN status <> 'EXPIRED' THEN callback_id END
FROM seed_payment
WHERE with_session AND (status IN ('PAID', 'PARTIALLY_REFUNDED', 'REFUNDED')
    OR status = 'EXPIRED' AND pg_temp.chance(n, 18, 40) = 0);

INSERT INTO refund
    (id, merchant_id, payment_id, capture_id, amount, amount_text, currency, amount_minor, reason,
     status, step, reference, requested_by, created_at, updated_at)
SELECT pg_temp.timed_id(at), s.merchant_id, s.payment_id, c.id, refunded, refunded::numeric(12, 2)::text,
    s.currency, (refunded * 100)::bigint, 'the buyer sent it back', 'SUCCEEDED', 'ended',
    're_' || md5(c.id::text), 'merchant:' || s.merchant_id, at, at
FROM seed_payment s
JOIN capture c ON c.payment_id = s.payment_id AND c.credited
CROSS JOIN LATERAL (
    SELECT least(s.ended_at + pg_temp.chance(n, 9, 72) * interval '1 hour', clock()) AS at
) asked
WHERE refunded > 0;

WITH opened AS (
    INSERT INTO money_case
        (id, kind, merchant_id, payment_id, session_id, capture_id, status, opened_at, closed_at,
         closed_by, note)
    SELECT pg_temp.timed_id(c.captured_at), 'LATE_PAYMENT', s.merchant_id, s.payment_id, s.session_id,
        c.id, CASE WHEN is_old THEN 'ACCEPTED' ELSE 'OPEN' END, c.captured_at,
        CASE WHEN is_old THEN c.captured_at + interval '1 day' END,
        CASE WHEN is_old THEN 'seed' END, ''
    FROM seed_payment s
    JOIN capture c ON c.payment_id = s.payment_id AND NOT c.credited
    CROSS JOIN LATERAL (SELECT c.captured_at < clock() - interval '3 days' AS is_old) age
    RETURNING id, merchant_id, closed_at
)
INSERT INTO audit (id, at, who, why, action, merchant_id, details)
SELECT pg_temp.timed_id(closed_at), closed_at, 'seed', 'the shop sent the goods after all', 'case.resolve',
    merchant_id, json_build_object('case_id', 'case_' || pg_temp.base62(id))
FROM opened
WHERE closed_at IS NOT NULL;

-- The ledger entries of all these facts, as `payintent.accounting.model` defines them.
INSERT INTO ledger_entry
    (fact_id, fact, leg, merchant_id, debit, credit, amount, currency, created_at)
SELECT fact_id, fact, leg, s.merchant_id, debit, credit, entered, s.currency, entered_at
FROM seed_payment s
JOIN capture c ON c.payment_id = s.payment_id
LEFT JOIN refund r ON r.capture_id = c.id
LEFT JOIN money_case m ON m.capture_id = c.id AND m.status = 'ACCEPTED'
CROSS JOIN LATERAL (
    SELECT 'gateway_clearing:' || s.account_id AS clearing, 'suspense:' || s.account_id AS suspense,
        'merchant_payable:' || s.merchant_id AS payable,
        'refund_reserve:' || s.account_id AS reserve, round(s.amount * s.fee_rate, 2) * 100 AS fee
) a
CROSS JOIN LATERAL (VALUES
    (c.id, 'capture', 'suspense', clearing, suspense, CASE WHEN NOT credited THEN minor END,
        c.captured_at),
    (c.id, 'capture', 'payable', clearing, payable, CASE WHEN credited THEN minor - fee END,
        c.captured_at),
    (c.id, 'capture', 'fee', clearing, 'fee_income', CASE WHEN credited THEN fee END,
        c.captured_at),
    (r.id, 'refund_reserved', 'whole', payable, reserve, r.amount_minor, r.created_at),
    (r.id, 'refund_done', 'whole', reserve, clearing, r.amount_minor, r.updated_at),
    (m.id, 'case_accepted', 'whole', suspense, payable, c.amount_minor, m.closed_at)
) AS e (fact_id, fact, leg, debit, credit, entered, entered_at)
WHERE fact_id IS NOT NULL AND entered > 0;

-- An operator cancelled one in ten of the cancelled payments.
INSERT INTO audit (id, at, who, why, action, merchant_id, details)
SELECT pg_temp.timed_id(ended_at), ended_at, 'seed', 'the shop asked for it', 'payment.cancel',
    merchant_id, json_build_object('payment_id', 'pay_' || pg_temp.base62(payment_id))
FROM seed_payment
WHERE status = 'CANCELLED' AND pg_temp.chance(n, 10, 10) = 0;

INSERT INTO event (id, payment_id, merchant_id, type, body, occurred_at)
SELECT pg_temp.timed_id(s.ended_at), s.payment_id, s.merchant_id, type,
    format('{"type":"%s","timestamp":"%s","data":{"payment":{"id":"pay_%s","status":"%s",'
            '"currency":"%s","amount":"%s","payer_uid":"%s",%s,"metadata":%s}}}',
        type, pg_temp.wire_time(s.ended_at), pg_temp.base62(s.payment_id),
        CASE WHEN p.receipt_id IS NULL THEN s.status ELSE 'PAID' END, s.currency, p.amount_text,
        s.payer_uid, own, p.metadata),
    s.ended_at
FROM seed_payment s
JOIN payment p ON p.id = s.payment_id
CROSS JOIN LATERAL (
    SELECT CASE WHEN p.receipt_id IS NOT NULL THEN 'payment.completed'
            ELSE 'payment.' || lower(s.status) END AS type,
        CASE WHEN p.receipt_id IS NOT NULL THEN format(
                '"receipt_id":"rcpt_%s","provider":"%s","paid_at":"%s"', pg_temp.base62(p.receipt_id),
                s.provider_name, pg_temp.wire_time(s.ended_at))
            WHEN s.status = 'FAILED' THEN format(
                '"failure_reason":"DECLINED","failed_at":"%s"', pg_temp.wire_time(s.ended_at))
            ELSE format('"%s_at":"%s"', lower(s.status), pg_temp.wire_time(s.ended_at)) END AS own
) written
WHERE s.ended_at IS NOT NULL;

-- Nearly all events are delivered immediately. The delivery of one in a hundred events older than
-- four days was abandoned, and one in fifty events of the last three days is still pending.
INSERT INTO delivery (event_id, merchant_id, state, attempts, next_at, delivered_at)
SELECT e.id, s.merchant_id, state, attempts,
    CASE state WHEN 'pending' THEN clock() + interval '6 hours' ELSE s.ended_at END,
    CASE state WHEN 'delivered'
        THEN s.ended_at + (attempts - 1) * interval '10 minutes' + interval '1 second' END
FROM seed_payment s
JOIN event e ON e.payment_id = s.payment_id
CROSS JOIN LATERAL (
    SELECT CASE WHEN NOT has_url THEN 'skipped'
        WHEN ended_at < clock() - interval '4 days' AND pg_temp.chance(n, 11, 100) = 0 THEN 'dead'
        WHEN ended_at BETWEEN clock() - interval '3 days' AND clock() - interval '1 hour'
            AND pg_temp.chance(n, 11, 50) = 0 THEN 'pending'
        ELSE 'delivered' END AS state
) came
CROSS JOIN LATERAL (
    SELECT CASE state WHEN 'skipped' THEN 0 WHEN 'dead' THEN 13 WHEN 'pending' THEN 5
        WHEN 'delivered' THEN 1 + (pg_temp.chance(n, 12, 20) = 0)::int END AS attempts
) tried
WHERE ended_at IS NOT NULL;

INSERT INTO attempt
    (id, event_id, number, outcome, status, detail, answer, duration_ms, started_at, url)
SELECT pg_temp.timed_id(at), d.event_id, number,
    CASE WHEN good THEN 'delivered' ELSE 'http_error' END, CASE WHEN good THEN 200 ELSE 503 END, '',
    '', 20 + pg_temp.chance(n, 13, 80), at, s.url
FROM seed_payment s
JOIN event e ON e.payment_id = s.payment_id
JOIN delivery d ON d.event_id = e.id
CROSS JOIN LATERAL generate_series(1, d.attempts) AS number
CROSS JOIN LATERAL (
    SELECT d.state = 'delivered' AND number = d.attempts AS good,
        s.ended_at + (number - 1)
            * CASE d.state WHEN 'dead' THEN interval '6 hours' ELSE interval '10 minutes' END AS at
) done;
