-- When a merchant's key was last used, to the minute.
ALTER TABLE api_key ADD COLUMN last_used_at timestamptz;

-- Where an attempt went; a merchant's address may have changed since.
ALTER TABLE attempt ADD COLUMN url text;

-- The merchant's order number, by which operators search. Metadata may hold what `->>` refuses.
CREATE FUNCTION payment_order_id(metadata json) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
    RETURN metadata ->> 'order_id';
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END $$;
