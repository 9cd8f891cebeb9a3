"""The preview of `unhang remediate`: the playbook in check mode, and a table of what each role
would change or refuse on each node."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from unhang.act.commands.asking_schedulers import ask_schedulers
from unhang.act.commands.typed_again import RemediateOptions, typed_again
from unhang.act.plan.description import describe_order
from unhang.act.plan.plan_document import Plan, digest_of_plan, read_plan
from unhang.act.plan.scheduler_jobs import hosts_to_ask, plan_with_jobs
from unhang.act.rollout.preview import parse_events, preview_of
from unhang.act.rollout.preview_table import render_preview
from unhang.act.rollout.reasons import joined
from unhang.core import project
from unhang.core.ansible import ansible_env
from unhang.core.ansible.play_process import Played
from unhang.core.ansible.playbook_command import play_into
from unhang.core.ansible.preview_events import PREVIEW_ENV
from unhang.core.ansible.run_files import NOT_LATEST_ENV
from unhang.core.commands.deliver import deliver
from unhang.core.errors import UserError
from unhang.core.json_text import render_json
from unhang.core.run import run_folder
from unhang.core.run.own_runs import own_inventories
from unhang.core.secrets_in_text import masked_document
from unhang.core.terminal import terminal_shape
from unhang.core.text import ascii_only, counted, visible

CALLBACK = "unhang_preview"
PREVIEWED = "previewed.json"  # the digest of the plan that was previewed last
FATAL = re.compile(
    r"^(?:fatal|failed): \[(?P<host>[^\]]+)\].*?\"msg\": \"(?P<msg>(?:[^\"\\]|\\.)*)\""
)

NO_REASON = "non-zero return code"  # of a command, which printed its reason
STDERR = re.compile(r'"stderr": "(?P<msg>(?:[^"\\]|\\.)+)"')


def shown_line(line: str) -> str:
    """A line of Ansible's output as shown while a playbook runs; "" for lines whose content is in
    the table or the journal, or of no interest."""
    found = FATAL.match(line)
    if not found:
        return ""
    text = (STDERR.search(line) or found)["msg"] if found["msg"] == NO_REASON else found["msg"]
    try:
        message = str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        message = text  # not JSON, so it is printed unchanged
    why = joined(message.removeprefix(found["host"] + " "))
    return f"unhang: {visible(found['host'] + ': ' + why, 300)}"


def run_preview(
    command: Sequence[str],
    home: Path,
    new_run: Path,
    folder: Path,
    plan: Plan,
    options: RemediateOptions,
) -> int:
    """0 if it succeeded on every node, else 2. Raises UserError if it did not begin, or was
    stopped."""
    retry = typed_again(folder, options)
    nodes = counted(len(plan.wave_of), "node")
    print(
        f"unhang: previewing {nodes}: roles in check mode, nothing is written; -v shows Ansible's"
        " own output",
        file=sys.stderr,
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix="unhang-preview-") as place:
        results = Path(place) / "results.jsonl"
        played = play_into(
            list(command),
            home,
            new_run,
            preview_line(verbose=options.verbose),
            _environment(home, results),
        )
        events = (
            parse_events(results.read_text(encoding="utf-8", errors="replace"))
            if results.is_file()
            else []
        )
    if played.stopped:
        raise UserError(
            f"it was stopped by hand; nothing was written on any node; preview again with: {retry}"
        )
    # refused before a node was contacted; the reason was printed
    if not (new_run / "run.json").is_file() and any(map(shown_line, played.output.splitlines())):
        raise UserError(f"the preview did not begin; ansible-playbook ended with {played.code}")
    if not any(one["role"] for one in events) and not any(
        one["host"] in plan.by_host and one["status"] == "failed" for one in events
    ):
        sys.stderr.write("" if options.verbose else played.output)
        raise UserError(f"the preview did not begin; ansible-playbook ended with {played.code}")
    _refuse_hosts_that_are_gone(folder, new_run)
    if played.code == 0:
        run_folder.write_atomically(
            folder / PREVIEWED, json.dumps({"digest": digest_of_plan(plan)}) + "\n"
        )
    now = _with_jobs(plan, folder, options)
    _show(preview_of(now, events), played, folder, options, (plan, now))
    return 0 if played.code == 0 else 2


def _with_jobs(plan: Plan, folder: Path, options: RemediateOptions) -> Plan:
    """The plan with the jobs of now, for whoever starts to drain now."""
    hosts = hosts_to_ask(plan.by_host[host] for host in plan.wave_of)
    if not hosts:
        return plan
    inventories = options.inventory or own_inventories(folder)
    return plan_with_jobs(plan, ask_schedulers(hosts, inventories, options.ansible))


def _refuse_hosts_that_are_gone(folder: Path, new_run: Path) -> None:
    """Refuses hosts that the inventory does not have, as --apply does, because Ansible silently
    skips them. Raises UserError."""
    if (new_run / "run.json").is_file():
        read_plan(
            folder, [str(host) for host in run_folder.read_run(new_run).document.get("hosts") or []]
        )


def _environment(home: Path, results: Path) -> dict[str, str]:
    callbacks = ansible_env.ansible_environment(home, os.environ)["ANSIBLE_CALLBACKS_ENABLED"]
    return {
        NOT_LATEST_ENV: "1",
        PREVIEW_ENV: str(results),
        "ANSIBLE_CALLBACKS_ENABLED": f"{callbacks},{CALLBACK}",
    }


def preview_line(*, verbose: bool) -> Callable[[str], None]:
    """Handles each line of Ansible's output: a reason is reported once, for the first node that
    fails for it; the rest is in the table."""
    shown: set[str] = set()

    def report(line: str) -> None:
        text = line if verbose else shown_line(line)
        if verbose or (text and reason_of(text) not in shown):
            shown.add(reason_of(text))
            print(text, file=sys.stderr, flush=True)

    return report


def reason_of(text: str) -> str:
    """The reason in a line of shown_line(), of a role or the proof, without the node and the next
    step, which may name the node."""
    return text.split(": ", 2)[-1].removeprefix("is not proved healthy: ").partition("; next: ")[0]


def refuse_another_than_previewed(folder: Path, plan: Plan) -> None:
    """Raises UserError if another plan of this run was previewed last: what is applied is what a
    person has looked at."""
    if not (folder / PREVIEWED).is_file():
        return
    try:
        written = json.loads((folder / PREVIEWED).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        written = None
    seen, digest = (
        str(written.get("digest")) if isinstance(written, dict) else "",
        digest_of_plan(plan),
    )
    if seen != digest:
        again = f"{project.program_as_typed()} remediate {run_folder.as_typed(folder)}"
        raise UserError(
            f"the plan {digest[:12]} was not previewed, unlike the plan {visible(seen, 12)};"
            f" preview it first: {again}"
        )


def _show(
    preview: dict[str, Any],
    played: Played,
    folder: Path,
    options: RemediateOptions,
    plans: tuple[Plan, Plan],
) -> None:
    """plans: as it is, and with the jobs of now."""
    if options.quiet:
        return
    if options.format == "json":
        deliver(render_json(preview), "-")
    else:
        width, _, plain = terminal_shape(sys.stdout, os.environ)
        text = f"{describe_order(plans[0], options.drain, plans[1], width)}\n" + render_preview(
            masked_document(preview), width
        )
        ended = (
            f"previewed; next: {typed_again(folder, options, '--apply')}"
            if played.code == 0
            else f"the preview failed on a node (ansible-playbook ended with {played.code})"
        )
        deliver((ascii_only(text) if plain else text) + f"\n{ended}\n", "-")
