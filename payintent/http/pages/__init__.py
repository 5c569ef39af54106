"""Building blocks for HTML pages: forms, cookies, static files and templates."""
