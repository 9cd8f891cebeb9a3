"""The judge: node facts, policy and rules in, verdicts and findings out. Reads run folders only; never acts."""
