"""Building blocks of HTML pages: forms, sessions, static files and templates."""
