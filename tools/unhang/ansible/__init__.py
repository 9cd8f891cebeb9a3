"""What the Ansible plugins of this project share: values in, values out, but for run_files; none of it imports Ansible."""
