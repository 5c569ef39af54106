"""The people of a merchant who use the portal."""
