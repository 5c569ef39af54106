"""HTTP in: knows shapes and statuses, decides nothing."""
