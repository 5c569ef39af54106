"""PostgreSQL: one file per aggregate, one typed function per query."""
