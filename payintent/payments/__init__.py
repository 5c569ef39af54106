"""The payment lifecycle. Only `transitions` changes a payment's status."""
