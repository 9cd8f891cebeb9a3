"""Changes packages so that they can be rolled back: judged by a simulation, saved, run by apt or
dnf, read back, pinned and held."""
