-- New merchants give back at once what no payment may own; those that are here keep their choice.
ALTER TABLE merchant ALTER COLUMN auto_refund SET DEFAULT true;
