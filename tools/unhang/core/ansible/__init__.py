"""Code that the Ansible plugins of this project share. It imports no Ansible; only run_files writes
files."""
