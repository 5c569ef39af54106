-- The cells of an installation, and where merchants have their payments (decision 116). Without a
-- row a merchant's payments are in cell 0. A database says which cell it is, and of which
-- installation: a wrong address is refused.
CREATE TABLE cell (
    number smallint PRIMARY KEY CONSTRAINT cell_number CHECK (number BETWEEN 0 AND 1023),
    state text NOT NULL DEFAULT 'open'
        CONSTRAINT cell_state CHECK (state IN ('open', 'draining', 'closed')),
    added_at timestamptz NOT NULL DEFAULT clock()
);
INSERT INTO cell (number) VALUES (0);
CREATE TABLE merchant_cell (
    merchant_id bigint NOT NULL REFERENCES merchant,
    cell smallint NOT NULL REFERENCES cell (number),
    since timestamptz NOT NULL DEFAULT clock(),
    until timestamptz CONSTRAINT merchant_cell_until CHECK (until >= since),
    PRIMARY KEY (merchant_id, since)
);
CREATE UNIQUE INDEX merchant_cell_present ON merchant_cell (merchant_id) WHERE until IS NULL;
ALTER TABLE installation
    ADD COLUMN cell smallint NOT NULL DEFAULT 0
        CONSTRAINT installation_cell CHECK (cell BETWEEN 0 AND 1023),
    ADD COLUMN id uuid NOT NULL DEFAULT gen_random_uuid();
