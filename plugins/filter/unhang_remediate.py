# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Filters of the playbook remediate.yml: a node's findings out of a run folder, and whether it is proved healthy. The work is done by unhang.remedy."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ansible.errors import AnsibleFilterError

_PLUGINS = Path(__file__).resolve().parents[1]
_TOOLS = str(_PLUGINS.parent / "tools")
for _folder in (_TOOLS, str(_PLUGINS)):
    if _folder not in sys.path:
        sys.path.append(_folder)  # plain ansible-playbook may run from an environment in which unhang is not installed


def findings_of(run, host):
    """A host's own findings in a judged run. Verdicts fail, unknown and waived."""
    try:
        document = json.loads((Path(str(run)) / "findings.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise AnsibleFilterError(f"expected a judged run in {run}, found none: {problem}") from None
    return [one for one in document["findings"] if one["host"] == str(host)]


def status_of(run, host):
    """{status, message} of a host's record in a run; missing when there is none."""
    from unhang_plugin.run_files import file_stem

    try:
        document = json.loads((Path(str(run)) / "nodes" / (file_stem(str(host)) + ".json")).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"status": "missing", "message": "it was not read"}
    return {"status": document["status"], "message": document["message"] or ""}


def proof_of(before, after, host, serious=("critical", "error")):
    """{healthy, reasons, gone, left, person}: see unhang.remedy.proof."""
    from unhang.remedy.proof import prove

    before, after = (json.loads(json.dumps(one, default=str)) for one in (before, after))
    return prove(before, after, str(host), [str(one) for one in serious])


class FilterModule:
    """What Ansible looks for."""

    def filters(self):
        """Filters by name."""
        return {"unhang_findings": findings_of, "unhang_status": status_of, "unhang_proof": proof_of}
