"""Gateway callbacks: verification, deduplication and processing."""
