ALTER TABLE payment VALIDATE CONSTRAINT payment_return_url;
ALTER TABLE payment VALIDATE CONSTRAINT payment_cancel_url;
