-- The pages of the shop to which the buyer of a payment returns.

-- The characters exclude user names, fragments and everything that browsers parse differently.
ALTER TABLE payment
    ADD COLUMN return_url text,
    ADD COLUMN cancel_url text,
    ADD CONSTRAINT payment_return_url CHECK (
        length(return_url) <= 2048
        AND return_url ~ '^[Hh][Tt][Tt][Pp][Ss]?://[!$-.0-;=A-Z\[\]_a-z~]+([/?][!$-;=?-\[\]_a-z~]*)?$'
    ) NOT VALID,
    ADD CONSTRAINT payment_cancel_url CHECK (
        length(cancel_url) <= 2048
        AND cancel_url ~ '^[Hh][Tt][Tt][Pp][Ss]?://[!$-.0-;=A-Z\[\]_a-z~]+([/?][!$-;=?-\[\]_a-z~]*)?$'
    ) NOT VALID;
