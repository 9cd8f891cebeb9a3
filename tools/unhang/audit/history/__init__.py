"""What the run folders say over time; each question is answered by comparing two of them.

runs           the run folders, and the one that a person names
verdicts       what was found in a run, in the form in which runs are compared
configuration  what a run read of its nodes' configuration
changes        what changed from one run to another
past           the changes of a node or a rule over the runs that are there
"""
