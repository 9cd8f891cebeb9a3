"""Watches a running job: samples in, a word when it makes no progress out; then `inspect` says
why."""
