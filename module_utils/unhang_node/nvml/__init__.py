"""GPUs as NVML tells them: a session (live or recorded), and what is read through it."""
