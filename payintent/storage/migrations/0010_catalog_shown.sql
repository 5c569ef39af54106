-- What each merchant's catalog shows and since when, for its `updated_at` and its tag.

CREATE TABLE catalog_shown (
    merchant_id bigint NOT NULL REFERENCES merchant,
    viewer text NOT NULL  -- a country that is restricted or once was; empty: everybody else
        CONSTRAINT catalog_shown_viewer CHECK (viewer ~ '^([A-Z]{2})?$'),
    content_hash bytea NOT NULL,
    since timestamptz NOT NULL,
    PRIMARY KEY (merchant_id, viewer)
);
