"""Packages of rpm, changed by dnf: what `backend.Backend` asks for. Nothing of apt."""
