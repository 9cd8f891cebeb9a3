"""What remediate.yml asks the controller: may a policy be applied to a node, and is the node proved healthy afterwards."""
