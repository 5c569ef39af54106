-- A run over blocks that failed because this cell did not answer: workers do it again (decision 116).
ALTER TABLE reconciliation_blocks ADD COLUMN cell_away smallint;
