"""Settings in files: lines of ours, files of ours, and lines of others that are disabled where they stand."""
