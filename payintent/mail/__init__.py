"""Email: an encrypted outbox, and delivery through a mail server."""
