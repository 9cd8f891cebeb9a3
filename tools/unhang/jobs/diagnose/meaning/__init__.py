"""What events mean: which of them count, what they show together, what speaks for a cause, and what
a log concludes."""
