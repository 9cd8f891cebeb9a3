"""What a node boots: entries, kernels, the command line, and a trial boot that undoes itself."""
