"""A client: its model, its optimizer, its private data, its pool; its batch, its step, its saved state."""
