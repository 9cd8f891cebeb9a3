"""What a role must change on one node, from policy and facts. Values in, values out."""
