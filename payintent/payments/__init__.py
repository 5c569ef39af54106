"""What happens to a payment; only `transitions` changes a payment's status."""
