"""What `payintent dev` adds to the service: PostgreSQL, a simulated gateway, a demo shop."""
