"""Values that every trade uses: ids, money, countries, addresses, roles and errors."""
