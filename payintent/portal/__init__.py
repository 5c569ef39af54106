"""The merchant portal at `/merchant`, where members see and manage their merchant's data."""
