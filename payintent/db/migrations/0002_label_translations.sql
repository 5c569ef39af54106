-- The labels of a payment method by language, and those of the method that a session selected.

-- Both columns are objects such as {"th": "บัตรเครดิต"}. Language tags are not listed, so that a new
-- language needs no migration.
ALTER TABLE payment_method
    ADD COLUMN label_translations jsonb NOT NULL DEFAULT '{}',
    ADD CONSTRAINT payment_method_label_translations CHECK (
        jsonb_typeof(label_translations) = 'object'
        AND NOT label_translations @? '$.keyvalue() ? (
            @.value.type() != "string"
            || !(@.value like_regex "^.{1,100}$")
            || !(@.key like_regex "^[a-z]{2,3}(-[A-Z][a-z]{3})?$")
        )'
    ) NOT VALID;
ALTER TABLE session
    ADD COLUMN label_translations jsonb NOT NULL DEFAULT '{}';
