"""Brings back what was there before a change: files, packages, holds, boot entries and values of the running system."""
