"""Pictures of shops and products: fetched from elsewhere, made small, and kept in memory."""
