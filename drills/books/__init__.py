"""`python -m drills.books`: books and feeds of many merchants while everything goes wrong."""
