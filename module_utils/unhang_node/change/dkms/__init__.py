"""What DKMS has built, and why not."""
