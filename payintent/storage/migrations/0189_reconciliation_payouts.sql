-- A gateway's file has its payouts too: a run keeps how many, and how much (decision 89).
ALTER TABLE reconciliation_sum DROP CONSTRAINT reconciliation_sum_type;
ALTER TABLE reconciliation_sum ADD CONSTRAINT reconciliation_sum_type
    CHECK (type IN ('payment', 'refund', 'payout')) NOT VALID;
ALTER TABLE reconciliation_sum VALIDATE CONSTRAINT reconciliation_sum_type;
