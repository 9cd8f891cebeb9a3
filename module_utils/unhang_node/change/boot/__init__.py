"""Changes what a node boots: entries, kernels, the command line, and a trial boot that falls back
by itself."""
