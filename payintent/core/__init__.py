"""Basic types used everywhere: ids, money, countries, addresses, roles and errors."""
