"""Looks at a job while it runs: which processes are its ranks, and what they, NCCL, the GPUs and
the kernel say, twice. Reads; loads nothing into the job."""
