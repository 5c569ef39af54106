"""The operator's operations: every change is one operation, written with its audit entry."""
