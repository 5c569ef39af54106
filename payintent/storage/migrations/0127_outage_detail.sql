-- What was wrong when a gateway's channel was given a rest last, for operators.
ALTER TABLE gateway_outage ADD COLUMN detail text NOT NULL DEFAULT '';
