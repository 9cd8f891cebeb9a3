"""How nodes' documents come to a run folder other than by Ansible's tasks: one file for each way. A
way knows nothing of facts."""
