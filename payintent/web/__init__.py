"""What all HTML pages of the service share: templates, compressed answers, files of their own."""
