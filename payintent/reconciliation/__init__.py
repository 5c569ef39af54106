"""Reconciliation of our records with gateways' files, reporting APIs and contract logs."""
