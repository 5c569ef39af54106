-- When the checkout page showed the form that leads to the gateway: a gateway takes it once.
ALTER TABLE session
ADD COLUMN form_shown_at timestamptz;
