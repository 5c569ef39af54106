-- Temporary objects of the seeding connection: functions that generate ids like `payintent.core.ids`
-- and encode them in base62, and tables for a batch and for the merchants.

CREATE FUNCTION pg_temp.timed_id(at timestamptz) RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7'
        || substr(replace(gen_random_uuid()::text, '-', ''), 14))::uuid
$$;
CREATE FUNCTION pg_temp.opaque_id() RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT md5(gen_random_uuid()::text)::uuid
$$;
CREATE FUNCTION pg_temp.base62(id uuid) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    hex text = replace(id::text, '-', '');
    rest numeric = ('x' || left(hex, 8))::bit(32)::bigint * 79228162514264337593543950336
        + ('x' || substr(hex, 9, 12))::bit(48)::bigint::numeric * 281474976710656
        + ('x' || right(hex, 12))::bit(48)::bigint;
    part bigint;
    digits text = '';
BEGIN
    FOR piece IN 1..3 LOOP
        part = mod(rest, 839299365868340224);
        rest = div(rest, 839299365868340224);
        FOR digit IN 1..10 LOOP
            digits = substr('0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz',
                (part % 62)::int + 1, 1) || digits;
            part = part / 62;
        END LOOP;
    END LOOP;
    RETURN right(digits, 22);
END $$;
CREATE FUNCTION pg_temp.wire_time(at timestamptz) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
$$;
CREATE FUNCTION pg_temp.chance(n bigint, salt bigint, below bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT abs(hashint8extended(n, salt) % below)
$$;
-- The first and last payment numbers of a batch, the total number of payments, the number of final
-- payments that are open, the time of the first payment, and the current time.
CREATE TEMPORARY TABLE seed_batch (
    first bigint, last bigint, payments bigint, still_open bigint, since timestamptz,
    now timestamptz
) ON COMMIT DELETE ROWS;
CREATE TEMPORARY TABLE seed_merchant (
    share_end int, merchant_id bigint, has_url boolean, url text, payment_method_id bigint,
    account_id bigint, provider text, provider_name text, kind text, label text, fee_mode text,
    fee_rate numeric
);
