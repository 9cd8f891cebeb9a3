"""Settings in files: unhang's own lines and files, and lines of others that are disabled in
place."""
