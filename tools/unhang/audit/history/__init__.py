"""What changed between run folders: of findings, configuration and GPUs."""
