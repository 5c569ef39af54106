"""Groups, names and icons of payment methods on the checkout page."""
