"""Nodes and runs in, documents and reports for people and programs out."""
