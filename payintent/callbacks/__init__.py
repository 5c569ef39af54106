"""Gateway callbacks: verified, stored once and applied."""
