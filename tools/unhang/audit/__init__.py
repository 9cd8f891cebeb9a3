"""Facts of nodes in, findings and their causes out."""
