"""Operators: who may run which operation, the audit log, tokens and identities."""
