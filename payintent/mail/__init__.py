"""E-mail: what is sent, sealed while it waits, and sent by a mail server."""
