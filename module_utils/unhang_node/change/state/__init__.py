"""What undoes a change: one run at a time, the saved states, and the way back to one."""
