"""The hosted checkout page: routes, fields, templates, languages, static files, the browser SDK."""
