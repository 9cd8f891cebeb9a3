"""The judge: node facts, policy and rules in, verdicts and findings out. Reads only run folders;
changes nothing on a node."""
