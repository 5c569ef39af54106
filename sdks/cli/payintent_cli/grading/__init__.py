"""`payintent-cli grade`: test a merchant's webhook receiver with faults."""
