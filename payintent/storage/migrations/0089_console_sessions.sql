-- Sessions of the operator's console, each opened with an operator's token. A session counts only
-- while that token does, so its name and role are read from the token and not kept here. There is
-- no foreign key: a token that is replaced gets another public_id, and its sessions end.
CREATE TABLE console_session (
    id uuid PRIMARY KEY,
    token_public_id text NOT NULL,
    digest bytea NOT NULL,            -- of the secret in the cookie
    digest_before bytea,              -- of the one before, for requests that were under way
    address text,                     -- where it was opened from
    browser text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock(),
    rotated_at timestamptz NOT NULL DEFAULT clock(),
    last_used_at timestamptz NOT NULL DEFAULT clock(),
    expires_at timestamptz NOT NULL,
    revoked_at timestamptz,
    CONSTRAINT console_session_short CHECK (expires_at <= created_at + interval '12 hours')
);

CREATE INDEX console_session_of_token ON console_session (token_public_id, id);
CREATE INDEX console_session_expiry ON console_session (expires_at);
