-- People who sign in to the console by OpenID Connect. Issuer and subject say who somebody is; the
-- name is for people and for the audit log, and never changes. The role is what the provider said at
-- the last sign-in, and counts until `expires_at`.
CREATE TABLE operator_identity (
    id uuid PRIMARY KEY,
    issuer text NOT NULL
        CONSTRAINT operator_identity_issuer CHECK (length(issuer) BETWEEN 1 AND 500),
    subject text NOT NULL
        CONSTRAINT operator_identity_subject CHECK (length(subject) BETWEEN 1 AND 255),
    name text NOT NULL CONSTRAINT operator_identity_name
        CHECK (starts_with(name, 'oidc:') AND length(name) BETWEEN 6 AND 200),
    role text NOT NULL CONSTRAINT operator_identity_role
        CHECK (role IN ('viewer', 'support', 'finance', 'admin')),
    created_at timestamptz NOT NULL DEFAULT clock(),
    signed_in_at timestamptz NOT NULL DEFAULT clock(),
    expires_at timestamptz NOT NULL,
    blocked_at timestamptz
);
CREATE UNIQUE INDEX operator_identity_person ON operator_identity (issuer, subject);
CREATE UNIQUE INDEX operator_identity_name_once ON operator_identity (lower(name));

-- Sign-ins that were completed: each is completed once.
CREATE TABLE completed_sign_in (
    digest bytea PRIMARY KEY
        CONSTRAINT completed_sign_in_digest CHECK (length(digest) = 32),
    expires_at timestamptz NOT NULL
);
CREATE INDEX completed_sign_in_expiry ON completed_sign_in (expires_at);

-- No token has a name that an identity could have.
ALTER TABLE operator_token
    ADD CONSTRAINT operator_token_no_identity CHECK (NOT starts_with(lower(name), 'oidc:'));

-- A session is of a token or of an identity.
ALTER TABLE console_session
    ALTER COLUMN token_public_id DROP NOT NULL,
    ADD COLUMN identity_id uuid REFERENCES operator_identity,
    ADD CONSTRAINT console_session_holder CHECK (num_nonnulls(token_public_id, identity_id) = 1);
CREATE INDEX console_session_of_identity ON console_session (identity_id, id)
    WHERE identity_id IS NOT NULL;
