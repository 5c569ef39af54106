"""The documentation that the service itself serves."""
