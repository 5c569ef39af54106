"""E-mail: an encrypted outbox, and delivery through a mail server."""
