"""How packages are changed so that they can be changed back: judged by a simulation, saved, run by apt or dnf, read back, pinned and held."""
