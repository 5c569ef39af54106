"""The served documentation: the OpenAPI document, its reference, pages from Markdown."""
