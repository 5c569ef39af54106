-- A gateway's list that the worker has compared, or is comparing (decision 92).
CREATE TABLE reconciliation_run (
    id uuid PRIMARY KEY,
    account_id bigint NOT NULL REFERENCES provider_account (id),
    source text NOT NULL
        CONSTRAINT reconciliation_run_source CHECK (source IN ('folder')),
    name text NOT NULL,  -- of the file
    sha256 text NOT NULL,
    status text NOT NULL CONSTRAINT reconciliation_run_status
        CHECK (status IN ('running', 'matched', 'differs', 'failed')),
    attempts int NOT NULL DEFAULT 1,
    lease_until timestamptz NOT NULL,  -- a run that was left is begun again after it
    problem text NOT NULL DEFAULT '',  -- why it failed
    since timestamptz,  -- what was recorded from then on is expected in the list
    until timestamptz,
    opened int NOT NULL DEFAULT 0,  -- new cases
    created_at timestamptz NOT NULL DEFAULT clock(),
    ended_at timestamptz,
    CONSTRAINT reconciliation_run_once UNIQUE (account_id, sha256),
    CONSTRAINT reconciliation_run_ended CHECK ((status = 'running') = (ended_at IS NULL)),
    CONSTRAINT reconciliation_run_problem CHECK ((status = 'failed') = (problem <> ''))
);
CREATE INDEX reconciliation_run_recent ON reconciliation_run (ended_at) WHERE status <> 'matched';

-- How many, and how much in units of the currency, each side has.
CREATE TABLE reconciliation_sum (
    run_id uuid NOT NULL REFERENCES reconciliation_run (id),
    type text NOT NULL
        CONSTRAINT reconciliation_sum_type CHECK (type IN ('payment', 'refund')),
    currency text NOT NULL,
    lines bigint NOT NULL,
    records bigint NOT NULL,
    gateway numeric NOT NULL,
    service numeric NOT NULL,
    ledger numeric NOT NULL,
    merchants numeric NOT NULL,
    PRIMARY KEY (run_id, type, currency)
);

-- Files that were taken, as their folder or bucket shows them, so that none is read twice.
CREATE TABLE reconciliation_file (
    source text NOT NULL,
    account_id bigint NOT NULL REFERENCES provider_account (id),
    name text NOT NULL,
    version text NOT NULL,  -- of its content: its size and time of change, or its ETag
    run_id uuid NOT NULL REFERENCES reconciliation_run (id),
    PRIMARY KEY (source, account_id, name, version)
);
CREATE INDEX reconciliation_file_run ON reconciliation_file (run_id);
