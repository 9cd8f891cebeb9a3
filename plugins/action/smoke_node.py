# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""The controller's side of one node of a smoke test. Faults of the node are written to the test's
folder and reported in the result; no task fails.

Text from a node is written to files unchanged; only this plugin's own texts reach Ansible's
variables.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible import constants as C
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

PROJECT = Path(__file__).resolve().parents[2]
_TOOLS = [str(PROJECT / name) for name in ("tools", "module_utils")]
# plain ansible-playbook may run without unhang, or with another version of it
sys.path[:0] = [folder for folder in _TOOLS if folder not in sys.path]

try:
    from ansible._internal._errors._alarm_timeout import AnsibleTimeoutError
except ImportError:  # another ansible-core than 2.19 to 2.22 has it elsewhere

    class AnsibleTimeoutError(BaseException):  # type: ignore[no-redef]  # its stand-in
        """Never raised."""


from unhang.core.ansible.printable_text import clean
from unhang.core.ansible.run_files import write_atomically
from unhang.smoke import programs as programs

MOST_BYTES = 64 << 20
LOOK_S = 8  # seconds that one poll may wait on the node for the end
ANSWER_S = 30
AGAIN_S = 2
NOTHING = 7
FINDS_TORCH = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; import importlib.util as u;"
    f" sys.exit(0 if u.find_spec('torch') else {NOTHING})"
)


class Trouble(Exception):
    """This node did not answer; the text is the reason in one line."""


@contextlib.contextmanager
def within(limit_s: Any) -> Iterator[None]:
    """Limits the time of a block: over a dead connection ssh may wait for a quarter of an hour.
    Raises Trouble."""

    def late(*_: Any) -> None:
        raise Trouble(f"gave no answer within {limit_s} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(limit_s)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class ActionModule(ActionBase):
    """One step on one node: able, surveyed, started, ended."""

    _supports_check_mode = False
    _supports_async = True

    def run(self, tmp: str | None = None, task_vars: Any = None) -> dict[str, Any]:
        """{changed: false, problem: null or a line}; after `started` also place, boot_id, job,
        deadline_s."""
        super().run(tmp, task_vars)
        options = {
            "state": {"required": True, "choices": ["able", "surveyed", "started", "ended"]},
            "folder": {"type": "path", "default": ""},
            "python": {"type": "str", "default": ""},
            "runtime": {"type": "str", "default": ""},
        }
        options |= {
            "round": {"type": "int", "default": 0},
            "started": {"type": "dict"},
            "reconnect_s": {"type": "int", "default": 60},
        }
        _, given = self.validate_argument_spec(argument_spec=options)
        self.host, self.vars = str(task_vars["inventory_hostname"]), task_vars
        self.folder = Path(given["folder"])
        self.place = self.folder / "rounds" / f"{given['round']:03d}"
        self.reconnect_s = given["reconnect_s"]
        if given["state"] == "able":
            lacks = self._lacks(given["python"] or self._python, given["runtime"])
            return {"changed": False, "problem": lacks}
        if given["state"] == "surveyed":
            return self._guarded(self._survey, self.folder / "surveys")
        if given["state"] == "started":
            return self._guarded(self._start, self.place / "events")
        return self._guarded(lambda: self._end(given["started"] or {}), self.place / "events")

    def _guarded(self, step: Any, folder: Path) -> Any:
        """The step's answer; if it raises Trouble, the reason is written to the folder where the
        answer would be."""
        why = None
        try:
            return {"changed": False, "problem": None, **(step() or {})}
        except AnsibleConnectionFailure as problem:
            why = f"the connection was lost or could not be made: {clean(problem.message, 300)}"
        except AnsibleTimeoutError:
            why = "gave no answer within the task's timeout"
        except AnsibleError as problem:
            why = clean(problem.message, 300)
        except Trouble as problem:
            why = clean(str(problem), 300)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self._file(folder, ".why"), why)
        return {"changed": False, "problem": why}

    def _file(self, folder: Path, suffix: str) -> Any:
        from unhang.smoke.smoke_folder import file_name

        return folder / file_name(self.host, suffix)

    @property
    def _python(self) -> Any:
        named = self._templar.template(
            self.vars.get("ansible_python_interpreter")
            or C.config.get_config_value("INTERPRETER_PYTHON")
            or "python3"
        )
        return "python3" if str(named).startswith("auto") else str(named)

    def _ask(self, line: str, content: Any) -> Any:
        """{stdout, stderr, rc} of a command on the node. Raises AnsibleConnectionFailure."""
        return self._low_level_execute_command(line, in_data=content)

    def _run_program(self, program: Any, **given: Any) -> Any:
        """The answer of one of unhang's programs on the node. Raises Trouble."""
        output = self._ask(
            programs.program_line(self._python), programs.program_text(program, given)
        )
        answer = programs.answered(output.get("stdout", ""))
        if not answer:
            raise Trouble(
                f"{self._python} did not do its part there (code {output.get('rc')}):"
                f" {_last_line(output)}"
            )
        return answer

    def _lacks(self, python: str, runtime: str) -> str | None:
        """What the test lacks here, in one line: torch in this Python, or the runtime of containers
        where the test runs in an image. It looks torch up, without an import, not with -I, for the
        test itself runs without it; an image is neither pulled nor run."""
        wanted, line = f"torch in {python}", f"{shlex.quote(python)} -c {shlex.quote(FINDS_TORCH)}"
        if runtime:
            wanted, line = runtime, f"command -v {shlex.quote(runtime)} || exit {NOTHING}"
        try:
            output = self._ask(line, None)
        except (AnsibleConnectionFailure, AnsibleTimeoutError):
            return f"the node did not answer whether it has {wanted}"
        if output.get("rc") == 0:
            return None
        found = "" if output.get("rc") == NOTHING else f": {clean(_last_line(output), 200)}"
        return f"the node does not have {wanted}{found}"

    def _survey(self) -> None:
        """Reads addresses, routes and GPUs. The payload is sent over standard input, and removes
        itself."""
        output = self._ask(
            programs.program_line(self._python), programs.program_text(programs.SURVEY, _sent())
        )
        if '"e": "survey"' not in output.get("stdout", ""):
            raise Trouble(
                f"could not be asked: {self._python} did not run there (code {output.get('rc')}):"
                f" {_last_line(output)}"
            )
        write_atomically(self._file(self.folder / "surveys", ".json"), output["stdout"])

    def _start(self) -> Any:
        """Starts the agent, independent of this connection. Does nothing if this round does not
        need the node."""
        path = self._file(self.place / "plans", ".json")
        if not path.is_file():
            return {}
        work = json.loads(path.read_text(encoding="utf-8"))
        sent = _sent()
        put = self._run_program(programs.PLACE, plan=work["plan"], **sent)
        place = str(put.get("place"))
        if "unhang-smoke-" not in place or not place.startswith("/"):
            raise Trouble("answered with no folder of its own")
        started = {
            "place": place,
            "boot_id": str(put.get("boot_id")),
            "job": "",
            "deadline_s": float(work["deadline_s"]),
        }
        program = [word.replace("{place}", place) for word in work["program"] or [self._python]]
        # Temporary files of the agent and the ranks are in the same folder, and are removed with it
        # even if the agent is killed.
        argv = [
            "env",
            f"TMPDIR={place}",
            *program,
            f"{place}/{sent['name']}",
            "node",
            "--plan",
            f"@{place}/plan.json",
            "--output",
            f"{place}/events.jsonl",
        ]
        job = self._execute_module(
            module_name="ansible.legacy.command",
            module_args={"argv": argv},
            task_vars=self.vars,
            wrap_async=self._task.async_val,
        )
        if job.get("failed") or not job.get("results_file"):
            self._remove(started)
            raise Trouble(f"could not start the payload: {job.get('msg') or 'no job was started'}")
        return {**started, "job": str(job["results_file"])}

    def _end(self, started: Any) -> Any:
        """Waits for the end, fetches the reports, and removes the folder."""
        if not started.get("place"):
            return {}
        try:
            answer = self._wait(started)
            if answer.get("events"):
                events = programs.unpacked(str(answer["events"]), MOST_BYTES)
                self._file(self.place / "events", ".jsonl").write_bytes(events)
            if not answer.get("reported"):
                raise Trouble(_without_end(answer, started))
        except ValueError as problem:
            raise Trouble(f"its results could not be fetched: {problem}") from None
        finally:
            self._remove(started)
        return {}

    def _wait(self, started: Any) -> Any:
        """The last answer of ANSWER. A lost connection is retried for reconnect_s seconds. Raises
        AnsibleConnectionFailure, Trouble."""
        until = time.monotonic() + started["deadline_s"]
        lost_since = None
        asked = {
            "place": started["place"],
            "job": started["job"],
            "wait_s": LOOK_S,
            "most_bytes": MOST_BYTES,
        }
        while True:
            last = time.monotonic() > until
            try:
                with within(LOOK_S + ANSWER_S):
                    answer = self._run_program(programs.ANSWER, last=last, **asked)
            except (AnsibleConnectionFailure, Trouble):
                lost_since = lost_since or time.monotonic()
                if time.monotonic() - lost_since > self.reconnect_s:
                    raise
                with contextlib.suppress(AnsibleError, AttributeError):
                    self._connection.reset()
                time.sleep(AGAIN_S)
                continue
            lost_since = None
            if answer.get("over") or last or not answer.get("place"):
                return answer

    def _remove(self, started: Any) -> None:
        """Removes the folder; only Ansible's note of the job's result stays on the node."""
        problem = None
        try:
            with within(ANSWER_S):
                problem = self._run_program(
                    programs.REMOVE, place=started["place"], job=started["job"]
                ).get("problem")
        except (AnsibleError, Trouble) as trouble:
            problem = str(trouble)
        if problem:
            notes = self.folder / "notes"
            notes.mkdir(parents=True, exist_ok=True)
            text = (
                f"{self.host}\t{started['place']} could not be removed from the node:"
                f" {clean(str(problem), 300)}"
            )
            write_atomically(self._file(notes, f".{self.place.name}.txt"), text)


def _sent() -> dict[str, str]:
    """The payload's name and content, as the programs take them."""
    from unhang.smoke.payload_zip import NAME, payload_bytes

    return {"name": NAME, "payload": programs.packed(payload_bytes())}


def _last_line(output: Any) -> Any:
    lines = [
        line
        for line in (output.get("stderr") or output.get("stdout") or "").splitlines()
        if line.strip()
    ]
    return lines[-1][:200] if lines else "without a word"


def _without_end(answer: Mapping[str, Any], started: Any) -> Any:
    """The reason why the agent's reports do not contain its end."""
    if answer.get("boot_id") != started["boot_id"]:
        return "the node was rebooted in the middle of the test"
    if not answer.get("place"):
        return "the test's folder is gone from the node"
    if answer.get("problem"):
        return f"its results could not be fetched: {answer['problem']}"
    job = answer["job"] if isinstance(answer.get("job"), dict) else {}
    if answer.get("over"):
        last = _last_line({"stderr": str(job.get("stderr") or job.get("msg") or "")})
        return f"the agent ended without a report of its end (code {job.get('rc')}): {last}"
    return "the agent did not end by its deadline"
