"""The contracts as JSON Schema, what reads them, and what says where a document departs from one."""
