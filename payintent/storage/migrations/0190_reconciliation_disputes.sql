-- A gateway's list has what disputes took and gave back too: a run keeps how many, and how much.
ALTER TABLE reconciliation_sum DROP CONSTRAINT reconciliation_sum_type;
ALTER TABLE reconciliation_sum ADD CONSTRAINT reconciliation_sum_type
    CHECK (type IN ('payment', 'refund', 'dispute', 'dispute_reversal', 'payout')) NOT VALID;
ALTER TABLE reconciliation_sum VALIDATE CONSTRAINT reconciliation_sum_type;
