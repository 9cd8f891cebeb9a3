"""Logs, scripts and files of jobs in, causes of hangs out."""
