-- concurrently: each statement by itself, so that payments go on being made meanwhile
ALTER TABLE merchant VALIDATE CONSTRAINT merchant_test_side;
ALTER TABLE merchant VALIDATE CONSTRAINT merchant_live_merchant;
ALTER TABLE api_key VALIDATE CONSTRAINT api_key_mode;
ALTER TABLE provider_account VALIDATE CONSTRAINT provider_account_mode;
ALTER TABLE payment_method VALIDATE CONSTRAINT payment_method_merchant_mode;
ALTER TABLE payment_method VALIDATE CONSTRAINT payment_method_account_mode;
