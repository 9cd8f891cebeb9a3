"""Settings of the host: limits, kernel and module parameters, /dev/shm, services."""
