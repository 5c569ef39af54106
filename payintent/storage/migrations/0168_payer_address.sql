-- The address of a payer is forgotten after a time, and what it paid is not (decision 95).
ALTER TABLE chain_receipt ALTER COLUMN payer DROP NOT NULL;
