"""Groups findings into causes: the findings that one fault explains, the action, and the command
for it."""
