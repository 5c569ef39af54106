"""One adapter per payment gateway; each implements the domain's `Gateway`."""
