-- Which processes serve, and which cells each has opened: a merchant must not be placed in a cell
-- that one of them does not know (decision 121). Control's alone.
CREATE TABLE cell_process (
    id uuid PRIMARY KEY,
    name text NOT NULL CONSTRAINT cell_process_name CHECK (length(name) <= 200),
    cells smallint[] NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT clock()
);
