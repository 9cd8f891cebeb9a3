"""Sources: one module for each kind of thing that can hang; each source is read in a child process
of its own."""
