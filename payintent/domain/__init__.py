"""The rules of payments: values in, values out; nothing but the standard library."""
