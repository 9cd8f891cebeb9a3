"""GPUs as NVML reports them: a session (live or recorded), and what is read through it."""
