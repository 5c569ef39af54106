-- concurrently: each statement by itself, so that payments go on being made meanwhile
-- What is of a payer may be sealed where it stands (decision 113): `sealed:<key>:<digest>:<box>`.
-- By key it is found to be sealed anew, by digest it is searched for.
CREATE INDEX CONCURRENTLY IF NOT EXISTS payment_sealed_email ON payment
(split_part(payer_email, ':', 2), split_part(payer_email, ':', 3))
WHERE starts_with(payer_email, 'sealed:');
CREATE INDEX CONCURRENTLY IF NOT EXISTS payment_sealed_metadata ON payment
(split_part(metadata #>> '{}', ':', 2), split_part(metadata #>> '{}', ':', 3))
WHERE json_typeof(metadata) = 'string';
CREATE INDEX CONCURRENTLY IF NOT EXISTS event_sealed_body ON event (split_part(body, ':', 2))
WHERE starts_with(body, 'sealed:');
