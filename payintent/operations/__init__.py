"""What an operator does: every change is one operation, written with its line in the audit log."""
