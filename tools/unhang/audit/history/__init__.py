"""The history of runs: one SQLite file that stores only changes.

location    where the file is, and whether a history is wanted
database    opens it, migrates it to the present schema, and reports faults in one line
stored      what a run folder says about its nodes, ready to be stored
recording   stores a run
changes     what changed between two runs
beginnings  since when a finding or a node is in its state, and what else changed then
recurring   findings that come and go, waivers that end, bandwidth compared with a node's own past
"""
