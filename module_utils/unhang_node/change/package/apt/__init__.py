"""dpkg packages, changed with apt: implements `backend.Backend`. Does not import dnf."""
