-- Endpoints of webhooks that a worker sends nothing for a while, so that operators see which, until
-- when and why. A row goes with the first delivery that is taken, or an hour after its time.
CREATE TABLE endpoint_outage (
    merchant_id bigint PRIMARY KEY REFERENCES merchant (id),
    since timestamptz NOT NULL DEFAULT clock(),
    until timestamptz NOT NULL,  -- the next delivery is tried then
    trips int NOT NULL DEFAULT 1 CONSTRAINT endpoint_outage_trips CHECK (trips > 0),
    detail text NOT NULL  -- what the last attempt came to
);
