"""Who holds the GPUs, the services that do so by right, and the modes of the GPUs."""
