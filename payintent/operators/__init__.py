"""Operator access, the audit log, tokens and identities."""
