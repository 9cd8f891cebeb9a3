"""A running job, seen from outside: evidence of its nodes in, the rank that all others wait for and
what to do about it out."""
