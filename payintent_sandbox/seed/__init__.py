"""`payintent seed`: fill a sandbox's database with a payment history."""
