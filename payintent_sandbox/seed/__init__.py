"""`payintent seed`: fills a sandbox's database with a history of payments."""
