-- concurrently: by itself, so that payments go on being made meanwhile
ALTER TABLE provider_account VALIDATE CONSTRAINT provider_account_test_gateway;
