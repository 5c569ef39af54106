-- Requests of gateways, for the story of a payment and for what a gateway's account did last: no
-- bodies, no secrets. A log, written apart from what it tells of, and kept for some weeks.
CREATE TABLE gateway_call (
    at timestamptz NOT NULL,
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    account_id bigint NOT NULL,
    request text NOT NULL CONSTRAINT gateway_call_request CHECK (
        request IN ('create_session', 'inquire', 'close_session', 'refund', 'inquire_refund')),
    payment_id uuid,
    session_id uuid,
    refund_id uuid,
    outcome text NOT NULL CONSTRAINT gateway_call_outcome
        CHECK (outcome IN ('answered', 'rejected', 'throttled', 'unknown', 'not_contacted')),
    detail text NOT NULL CONSTRAINT gateway_call_detail CHECK (length(detail) <= 300),
    duration_ms integer NOT NULL,
    PRIMARY KEY (at, id),
    CONSTRAINT gateway_call_subject CHECK (num_nonnulls(session_id, refund_id) = 1)
);
CREATE INDEX gateway_call_payment ON gateway_call (payment_id, at) WHERE payment_id IS NOT NULL;
CREATE INDEX gateway_call_failed ON gateway_call (account_id, at DESC) WHERE outcome <> 'answered';
