-- A payment does not wait for ever for a gateway that never decides: it expires, with a case.
ALTER TABLE money_case
    DROP CONSTRAINT money_case_kind,
    ADD CONSTRAINT money_case_kind CHECK (kind IN (
        'ORPHAN_CAPTURE', 'LATE_PAYMENT', 'DOUBLE_PAYMENT', 'AMOUNT_MISMATCH', 'TOKEN_MISMATCH',
        'UNKNOWN_REFERENCE', 'REFUND_REVERSED', 'RECONCILIATION', 'UNDECIDED'
    )) NOT VALID;
