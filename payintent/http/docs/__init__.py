"""Documentation pages served by the service."""
