"""E-mail: a sealed outbox, and delivery through a mail server."""
