-- Refunds that were made at a gateway itself, and issuers' fraud warnings, are cases.
ALTER TABLE money_case
    DROP CONSTRAINT money_case_kind,
    ADD CONSTRAINT money_case_kind CHECK (kind IN (
        'ORPHAN_CAPTURE', 'LATE_PAYMENT', 'DOUBLE_PAYMENT', 'AMOUNT_MISMATCH', 'TOKEN_MISMATCH',
        'UNKNOWN_REFERENCE', 'REFUND_REVERSED', 'RECONCILIATION', 'UNDECIDED', 'DISPUTE',
        'OUTSIDE_REFUND', 'FRAUD_WARNING'
    )) NOT VALID;
