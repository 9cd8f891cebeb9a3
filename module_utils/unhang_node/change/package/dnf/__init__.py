"""rpm packages, changed with dnf: implements `backend.Backend`. Does not import apt."""
