"""What runs found, from run to run: one SQLite file that keeps what changed and not what stayed.

place       where the file is, and whether there is to be one
database    opens it, brings it to the present schema, and tells what is wrong with it in one line
seen        what a run folder says about its nodes, ready to be stored
recording   stores a run
changes     what changed between two runs
beginnings  since when a finding or a node is as it is, and what else changed then
watched     findings that come and go, waivers that end, bandwidth against a node's own past
"""
