-- Bodies of callbacks that were applied are forgotten after their time; that they came is not.
ALTER TABLE callback ALTER COLUMN body DROP NOT NULL;
CREATE INDEX callback_body ON callback (applied_at) WHERE applied_at IS NOT NULL AND body IS NOT NULL;
