"""Money without an owner, and contradictions that need manual review."""
