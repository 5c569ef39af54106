-- Operators have roles, their tokens end, and what can redirect money needs two of them.

-- The names of operators are names of persons: what was issued twice is told apart from now on.
UPDATE operator_token AS t
SET name = left(t.name, 80) || ' (' || t.public_id || ')'
WHERE EXISTS (
    SELECT FROM operator_token AS other
    WHERE lower(other.name) = lower(t.name)
        AND (other.revoked_at IS NULL, other.created_at, other.public_id)
            > (t.revoked_at IS NULL, t.created_at, t.public_id)
);
ALTER TABLE operator_token
    ADD COLUMN role text NOT NULL DEFAULT 'admin' CONSTRAINT operator_token_role
        CHECK (role IN ('viewer', 'support', 'finance', 'admin')),
    ADD COLUMN expires_at timestamptz NOT NULL DEFAULT clock() + interval '90 days',
    ADD COLUMN last_used_at timestamptz;
-- Tokens of before could do everything, and still can; new ones say what they can.
ALTER TABLE operator_token
    ALTER COLUMN role SET DEFAULT 'viewer';
CREATE UNIQUE INDEX operator_token_name_once ON operator_token (lower(name));

-- An operation that another person must approve before it is run.
CREATE TABLE proposal (
    id uuid PRIMARY KEY,
    action text NOT NULL,
    merchant_id bigint,
    sealed bytea,  -- the operation's arguments; gone once somebody has decided, or nobody can
    changes text[] NOT NULL CONSTRAINT proposal_changes CHECK (cardinality(changes) > 0),
    proposed_by text NOT NULL CONSTRAINT proposal_proposed_by CHECK (proposed_by <> ''),
    why text NOT NULL,
    proposed_at timestamptz NOT NULL DEFAULT clock(),
    expires_at timestamptz NOT NULL DEFAULT clock() + interval '24 hours',
    status text NOT NULL DEFAULT 'WAITING' CONSTRAINT proposal_status
        CHECK (status IN ('WAITING', 'APPROVED', 'REJECTED')),
    decided_by text,
    decided_at timestamptz,
    note text NOT NULL DEFAULT '',
    CONSTRAINT proposal_decided CHECK (
        (status = 'WAITING') = (decided_by IS NULL)
        AND (status = 'WAITING') = (decided_at IS NULL)
        AND (status = 'WAITING' OR sealed IS NULL)
    ),
    CONSTRAINT proposal_two_people CHECK (status <> 'APPROVED' OR decided_by <> proposed_by)
);
CREATE INDEX proposal_sealed ON proposal (id) WHERE sealed IS NOT NULL;
