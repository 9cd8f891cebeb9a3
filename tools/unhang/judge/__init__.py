"""Facts -> findings, wherever the facts were read: a room that the audit, the gate and the command
line share. It never acts."""
