"""The operator's console: pages on the operator's port, complete without JavaScript."""
