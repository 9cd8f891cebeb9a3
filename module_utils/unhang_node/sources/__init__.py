"""One module per kind of thing that can hang; each is read in a child process of its own."""
