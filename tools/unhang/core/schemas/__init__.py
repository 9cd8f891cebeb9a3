"""The contracts as JSON Schema, their readers, and messages about documents that violate them."""
