"""`make chaos-books`: the books and the feeds of many merchants, while everything goes wrong."""
