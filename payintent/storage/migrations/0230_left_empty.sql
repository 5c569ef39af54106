-- A merchant that is set up in cell 0, and moved before its first payment, has nothing there: its
-- creates, its lists and its balance do not need that cell (decision 128).
ALTER TABLE merchant_cell
    ADD COLUMN left_empty boolean NOT NULL DEFAULT false,
    ADD CONSTRAINT merchant_cell_left_empty CHECK (NOT left_empty OR until IS NOT NULL);
