"""What several events mean together: one file for each kind of evidence; combining.py calls them
all."""
