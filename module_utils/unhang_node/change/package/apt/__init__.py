"""Packages of dpkg, changed by apt: what `backend.Backend` asks for. Nothing of dnf."""
