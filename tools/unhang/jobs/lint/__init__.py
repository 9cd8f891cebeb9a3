"""Finds faults in scripts before they run: settings of NCCL and of torch's NCCL backend in shell,
Slurm, Docker, Kubernetes, systemd and nccl.conf files."""
