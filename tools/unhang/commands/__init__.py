"""The commands of `unhang`, one file for each, imported when it is asked for."""

from __future__ import annotations

# name: what it is for
COMMANDS = {
    "audit": "look at every node of an inventory and judge what was seen",
    "collect": "read this machine and print its facts",
    "judge": "judge a run folder again, off-line",
    "report": "show a judged run: one screen, table, page, JSON, CSV and more",
    "runs": "list the runs of the history; remove old run folders",
    "diff": "say what changed from one run to another: findings and facts",
    "compare": "say where two groups, inventories or environments differ",
    "history": "say when a finding began and what else changed then; what comes and goes",
    "plan": "turn findings into a plan: which roles on which nodes, in which waves",
    "remediate": "carry a plan out in waves, stop where nodes fail, resume what was interrupted; say where each node stands",
    "playbook": "run one of unhang's playbooks with its configuration, from any folder",
    "completion": "print the completion of a shell: bash or zsh",
    "catalogue": "list or check the rules and tables",
    "explain": "say what is known of a rule, Xid, variable, version, GPU or incident, with sources",
    "smoke": "prove that a group of GPUs can train together, or say who is to blame",
    "preprovision": "decide which nodes may join: audit, smoke test alone and together",
    "policy": "write a policy from nodes that are known to be good",
    "verify": "say of an admission record whether it is the gate's, of this node and still true",
    "diagnose": "say from logs what happened and what most probably caused it",
    "lint": "find settings that do nothing, do harm or hide a fault in scripts, before they run",
}
# What playbooks call; nobody types it, so that no help lists it.
HIDDEN = {
    "rollout-step": "what playbooks/remediate.yml asks the controller",
    "gate-step": "what playbooks/preprovision.yml asks the controller",
}
