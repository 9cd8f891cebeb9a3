"""The commands of this wing: one file for each."""
