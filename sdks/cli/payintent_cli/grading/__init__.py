"""`payintent-cli grade`: a merchant's receiver of webhooks, tried with what goes wrong."""
