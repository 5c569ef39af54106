-- The people of a merchant, who sign in to the merchant portal by a passkey or a link.
CREATE TABLE member (
    id uuid PRIMARY KEY,
    merchant_id bigint NOT NULL REFERENCES merchant,
    email text NOT NULL CONSTRAINT member_email CHECK (length(email) BETWEEN 3 AND 150),
    role text NOT NULL CONSTRAINT member_role CHECK (role IN ('developer', 'finance')),
    invited_by text NOT NULL CONSTRAINT member_invited_by CHECK (invited_by <> ''),
    created_at timestamptz NOT NULL DEFAULT clock(),
    last_signed_in_at timestamptz
);
CREATE UNIQUE INDEX member_email_once ON member (merchant_id, lower(email));

-- A link signs its member in once. One at a time: another one replaces it.
CREATE TABLE member_link (
    member_id uuid PRIMARY KEY REFERENCES member ON DELETE CASCADE,
    digest bytea NOT NULL UNIQUE CONSTRAINT member_link_digest CHECK (length(digest) = 32),
    expires_at timestamptz NOT NULL
);

CREATE TABLE member_passkey (
    id uuid PRIMARY KEY,
    member_id uuid NOT NULL REFERENCES member ON DELETE CASCADE,
    credential_id bytea NOT NULL UNIQUE
        CONSTRAINT member_passkey_credential CHECK (length(credential_id) BETWEEN 1 AND 1023),
    public_key bytea NOT NULL  -- in COSE form
        CONSTRAINT member_passkey_public_key CHECK (length(public_key) BETWEEN 1 AND 4096),
    sign_count bigint NOT NULL CONSTRAINT member_passkey_sign_count CHECK (sign_count >= 0),
    -- When its last challenge was made: only a later one is accepted, so each is used once.
    challenged_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock(),
    last_used_at timestamptz
);
CREATE INDEX member_passkey_member ON member_passkey (member_id, id);

CREATE TABLE member_session (
    id uuid PRIMARY KEY,
    member_id uuid NOT NULL REFERENCES member ON DELETE CASCADE,
    digest bytea NOT NULL UNIQUE CONSTRAINT member_session_digest CHECK (length(digest) = 32),
    previous_digest bytea UNIQUE,  -- before the last rotation; requests under way may carry it
    rotated_at timestamptz NOT NULL DEFAULT clock(),
    expires_at timestamptz NOT NULL
);
CREATE INDEX member_session_member ON member_session (member_id, expires_at);

-- The last calls of merchants' keys, for their developers: no bodies, no queries, no secrets.
CREATE TABLE api_call (
    at timestamptz NOT NULL,
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    merchant_id bigint NOT NULL,
    method text NOT NULL,
    route text NOT NULL,
    status integer NOT NULL,
    error_code text,
    request_id text NOT NULL,
    duration_us integer NOT NULL,
    PRIMARY KEY (at, id)
);
CREATE INDEX api_call_merchant ON api_call (merchant_id, at, id);
CREATE INDEX api_call_failed ON api_call (merchant_id, at, id) WHERE status >= 400;
