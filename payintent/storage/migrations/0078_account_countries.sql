-- Where an account takes payments, of the countries that its gateway's adapter has.
ALTER TABLE provider_account
    ADD COLUMN countries text[]  -- NULL: all that the adapter has
        CONSTRAINT provider_account_countries CHECK (cardinality(countries) > 0);
