"""The users of the GPUs, the services among them, and the modes of the GPUs."""
