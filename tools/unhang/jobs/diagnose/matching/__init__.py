"""Which lines mean something: signatures and statements, the sieve that finds them fast, and the
events of a scan."""
