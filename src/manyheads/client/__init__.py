"""A client: its model, its optimizer, its private data, its pool, its saved state."""
