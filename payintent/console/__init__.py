"""The operator console, served on the operator port and fully usable without JavaScript."""
