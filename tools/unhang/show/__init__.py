"""All documents in; tables, pages, histories and comparisons for people and programs out."""
