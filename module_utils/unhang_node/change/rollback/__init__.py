"""Restores a saved state: files, packages, holds, boot entries and values of the running system."""
