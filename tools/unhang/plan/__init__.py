"""What a role is to bring a node to, worked out on the controller from the policy and the node's facts. Values in, values out; nothing here acts."""
