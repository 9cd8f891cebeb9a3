"""Findings and policy in; a plan, changes of nodes, their journal and the gate's decisions out."""
