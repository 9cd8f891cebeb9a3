"""Plans on the controller what a role must change on a node, from the policy and the node's facts.
Values in, values out; changes nothing."""
