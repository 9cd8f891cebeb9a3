"""What is known of a node that is being changed: who holds its lock, and what was there before."""
