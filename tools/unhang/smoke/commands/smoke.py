"""`unhang smoke`: proves that a group of ranks can train together, or names the suspects."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import shlex
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from unhang.core.commands.common_options import (
    add_examples,
    add_flag,
    add_format_option,
    add_repeatable,
    add_value,
)
from unhang.core.errors import UserError
from unhang.core.nodeset import expand_hosts
from unhang.core.path_arguments import checked_output
from unhang.core.smoke_result import MeetingPlace, SmokeResult
from unhang.smoke import node_plans as planning
from unhang.smoke.commands.smoke_expectations import expectations_of
from unhang.smoke.commands.smoke_options import SmokeOptions
from unhang.smoke.commands.smoke_output import deliver, exit_code
from unhang.smoke.container import RUNTIMES, Container, choose_container
from unhang.smoke.experiments import Experiment, experiment_rounds, narrowed, plan_experiments
from unhang.smoke.group import SessionOptions, why_busy
from unhang.smoke.launch import Launcher, slurm_launcher, ssh_launcher
from unhang.smoke.local import free_port, run_local, survey_here
from unhang.smoke.local_hosts import LocalHosts, one_host, run_hosts, several_hosts
from unhang.smoke.payload_zip import payload_bytes
from unhang.smoke.result import judge
from unhang.smoke.session import follow, smoke_session
from unhang.smoke.smoke_folder import StepInputs, next_step, read_result
from unhang.smoke.streams import Event, Stream
from unhang.smoke.switches import read_switches

FORMATS = ("table", "json", "junit")
EXAMPLES = """\
  unhang smoke --local                                    the GPUs of this machine
  unhang smoke --host 'gpu[01-08]'                        eight nodes over ssh, and which of them it is when it fails
  unhang smoke --host 'gpu[01-08]' --launcher slurm --srun=--partition=gpu -o junit"""  # noqa: E501


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _add_places(parser)
    _add_ranks(parser)
    _add_tests(parser)
    add_format_option(parser, FORMATS)
    add_value(parser, "--out", "FILE", "also write the JSON result to this file")
    add_examples(parser, EXAMPLES)


def _add_places(parser: argparse.ArgumentParser) -> None:
    add_flag(parser, "--local", "test this machine (default)")
    as_hosts = (
        "run as N hosts on this machine, so that NCCL uses its network transport between them"
        " (default: one host)"
    )
    add_value(parser, "--as-hosts", "N", as_hosts, int)
    add_repeatable(
        parser, "-l --host", "HOSTS", "test these nodes: names or node sets, for example gpu[01-08]"
    )
    parser.add_argument(
        "--launcher",
        choices=("fabric", "slurm"),
        default="fabric",
        help="how to start on --host: fabric is ssh (default), slurm is srun",
    )
    add_repeatable(
        parser,
        "--srun",
        "OPTION",
        "option for srun, for example --srun=--partition=gpu --srun=--gres=gpu:8",
    )
    beside = "start although processes or jobs use the GPUs; without it such a node takes no part"
    add_flag(parser, "--beside-jobs", beside)
    # the playbook: read a session's folder, write its next step, start nothing
    add_value(parser, "--step-in", "FOLDER", argparse.SUPPRESS)
    # the playbook: show the result of a session's folder
    add_value(parser, "--show-in", "FOLDER", argparse.SUPPRESS)
    parser.add_argument("--user", help="user name for ssh")
    add_value(
        parser,
        "--ssh-config",
        "FILE",
        "configuration file for ssh instead of the default ones; it can name keys and known hosts",
    )
    add_repeatable(parser, "--switch", "SWITCH=NODES", "the nodes of one switch, for isolation")
    parser.add_argument(
        "-i",
        "--inventory",
        metavar="PATH",
        help="an inventory that names the switches: variable unhang_switch, or groups leaf* and"
        " switch*",
    )
    parser.add_argument(
        "--isolate",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="after a failure of three or more nodes, find the faulty one",
    )
    add_value(
        parser,
        "--search-timeout",
        "SECONDS",
        "time for experiments and isolation (default: %(default)s)",
        float,
        1200.0,
    )


def _add_ranks(parser: argparse.ArgumentParser) -> None:
    add_value(parser, "--nproc", "N", "ranks per node (default: one per GPU; 2 without GPUs)", int)
    parser.add_argument(
        "--backend",
        choices=("auto", "nccl", "gloo"),
        default="auto",
        help="auto (default): nccl on nodes with GPUs, else gloo",
    )
    add_value(
        parser,
        "--phases",
        "NAMES",
        f"only these phases: {', '.join(planning.PHASES)}",
    )
    add_value(parser, "--python", "PATH", "the Python with the users' torch")
    add_value(
        parser,
        "--container-image",
        "IMAGE",
        "run in this image; --python is then a path in the image",
    )
    parser.add_argument(
        "--container-runtime",
        choices=RUNTIMES,
        help="program that runs the image (default: docker; under Slurm: pyxis)",
    )
    add_repeatable(
        parser,
        "--container-option",
        "OPTION",
        "option for the runtime: --container-option=--device=/dev/infiniband",
    )
    add_value(parser, "--port", "PORT", "port of the rendezvous (default: a free port)", int)


def _add_tests(parser: argparse.ArgumentParser) -> None:
    stalled = (
        "time after which a collective counts as stalled (default: 10, more for large messages)"
    )
    add_value(parser, "--step-timeout", "SECONDS", stalled, float)
    add_value(
        parser,
        "--timeout",
        "SECONDS",
        "time for the whole test (default: %(default)s)",
        float,
        planning.TOTAL_TIMEOUT_S,
    )
    add_value(
        parser, "--max-size", "SIZE", "largest message, for example 64M (default: as memory allows)"
    )
    add_value(
        parser,
        "--sizes",
        "SIZE,...",
        "message sizes of the bandwidth phase (default: 1M,32M,256M,1G; without GPUs 64K,1M,8M)",
    )
    add_repeatable(parser, "--env", "NAME=VALUE", "a setting for all ranks")
    add_repeatable(parser, "--rank-env", "RANK:NAME=VALUE", "a setting for one rank")
    # a fault to cause on purpose, one of planning.FAULTS, for a RANK, a HOST, HOST+HOST together,
    # or every group of at least *N nodes
    add_repeatable(parser, "--drill", "WHO:FAULT[:PHASE]", argparse.SUPPRESS)
    parser.add_argument(
        "--experiments",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="after a failure, search for a setting that avoids it",
    )
    measured = (
        "a policy whose key bandwidth sets the expected bandwidth (unhang policy --smoke writes it)"
    )
    add_value(parser, "--policy", "FILE", measured)
    # the playbook has the same key
    add_value(parser, "--policy-bandwidth", "JSON", argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """0 pass, 1 fail with suspects, 2 nothing could be tested, 3 not proved."""
    options = SmokeOptions.of(arguments)
    request = request_of(options)
    if arguments.out:
        checked_output(arguments.out)
    ways = {
        "--local": arguments.local,
        "--host": options.host,
        "--step-in": arguments.step_in,
        "--show-in": arguments.show_in,
    }
    chosen = [name for name, given in ways.items() if given] or ["--local"]
    if len(chosen) > 1:
        raise UserError(f"{' and '.join(chosen)} do not go together; take one of {', '.join(ways)}")
    if options.as_hosts is not None and chosen != ["--local"]:
        raise UserError(f"--as-hosts needs --local beside it, not {chosen[0]}")
    if arguments.step_in:
        return write_next_step(Path(arguments.step_in), options, request)
    if arguments.show_in:
        result = read_result(Path(arguments.show_in))
    else:
        started, began = datetime.datetime.now(datetime.UTC), time.monotonic()
        name, test = (options.launcher, smoke_there) if options.host else ("local", smoke_here)
        result = msgspec.structs.replace(
            test(options, request),
            launcher=name,
            started=started.isoformat(timespec="seconds"),
            duration_s=round(time.monotonic() - began, 2),
            command=_command(),
        )
    deliver(result, arguments.format, arguments.out)
    return exit_code(result)


def request_of(options: SmokeOptions) -> planning.Request:
    """The request of the options. Raises UserError for a contradiction."""
    numbers = {
        "nproc": options.nproc,
        "port": options.port,
        "step-timeout": options.step_timeout,
        "timeout": options.timeout,
        "search-timeout": options.search_timeout,
    }
    for name, value in numbers.items():
        if value is not None and value <= 0:
            raise UserError(f"--{name} takes a number above 0, not {value}")
    if options.port and options.port > 65535:
        raise UserError(f"--port takes a port up to 65535, not {options.port}")
    return planning.Request(
        backend=options.backend,
        phases=planning.parse_phases(options.phases) if options.phases else None,
        step_timeout_s=options.step_timeout,
        total_timeout_s=options.timeout,
        max_bytes=planning.parse_size(options.max_size) if options.max_size else None,
        bandwidth_bytes=tuple(map(planning.parse_size,
        options.sizes.split(","))) if options.sizes else None,
        python=None if options.container_image else options.python,
        drills=tuple(map(planning.parse_drill, options.drill)),
        environment=planning.parse_settings(options.env, "--env"),
        rank_environment=planning.parse_rank_settings(options.rank_env),
    )  # fmt: skip


def smoke_here(options: SmokeOptions, request: planning.Request) -> SmokeResult:
    """The smoke test on this machine, experiments included."""
    payload = payload_bytes()
    container = container_of(options, "local")
    backend = request.backend if request.backend != "auto" else "nccl" if local_gpus() else "gloo"
    if backend == "nccl" and not options.beside_jobs and (busy := why_busy(survey_here(payload))):
        raise UserError(f"{os.uname().nodename}: {busy}")
    here = hosts_here(options, backend)
    request = here.request(request)
    port = options.port or free_port()
    progress = Progress()

    def go(wanted: planning.Request, members: Sequence[planning.Member], at: int) -> list[Stream]:
        plans = planning.plan_group(wanted, members, "127.0.0.1", at)
        command = container.argv() if container else None
        return run_hosts(plans, lambda node: run_local(node, payload, command, progress.on_event))

    # read before anything is started, so that a missing file is reported at once
    expectations = expectations_of(options)
    result = judge(go(request, here.members, port), expectations)
    meeting = (here.members[0].host, "127.0.0.1", port, "lo", "one machine, its loopback")
    result = msgspec.structs.replace(result, rendezvous=MeetingPlace(*meeting))
    if options.experiments:

        def attempt(experiment: Experiment, phase: str) -> Generator[Any, Any, tuple[str, float]]:
            yield from ()  # it is run here, in no round of a session
            began = time.monotonic()
            group = (
                [dataclasses.replace(here.members[0], nproc=1)]
                if experiment.alone
                else here.members
            )
            streams = go(narrowed(request, phase, experiment), group, free_port())
            return judge(streams, expectations).verdict, time.monotonic() - began

        result = follow(experiment_rounds(result, plan_experiments(backend), attempt), lambda _: [])
    return result


def hosts_here(options: SmokeOptions, backend: str) -> LocalHosts:
    """This machine, or the hosts that it simulates. Raises UserError."""
    host, interface = os.uname().nodename, "lo" if backend == "gloo" else None
    if options.as_hosts is None:
        return one_host(host, options.nproc or local_gpus() or 2, interface)
    gpus = (
        os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(local_gpus())))
    ).split(",")
    return several_hosts(
        host, options.as_hosts, gpus if backend == "nccl" else [], options.nproc, interface
    )


def smoke_there(options: SmokeOptions, request: planning.Request) -> SmokeResult:
    """The smoke test over nodes that ssh or Slurm reaches."""
    hosts = expand_hosts(options.host)
    session, launcher = session_options(options), launcher_of(options)
    expectations = expectations_of(options)
    return follow(
        smoke_session(hosts, launcher.survey(hosts), request, session, expectations), launcher.run
    )


def session_options(options: SmokeOptions) -> SessionOptions:
    """The options about experiments after a failure. Raises UserError."""
    switches = (read_switches(options.inventory) if options.inventory else {}) | switches_of(
        options.switch
    )
    return msgspec.structs.replace(options, switches=switches)


def container_of(options: SmokeOptions, launcher: str) -> Container | None:
    """The image to run in, if one is named. Raises UserError."""
    return choose_container(
        options.container_image,
        options.container_runtime,
        options.python,
        options.container_option,
        launcher,
        options.backend != "gloo",
    )


def launcher_of(options: SmokeOptions) -> Launcher:
    """The launcher that reaches the nodes (ssh, Slurm). Raises UserError for missing files or
    programs."""
    payload = payload_bytes()
    container = container_of(options, options.launcher)
    on_event = Progress().on_event
    if options.launcher == "slurm":
        return slurm_launcher(payload, container, options.srun, on_event)
    return ssh_launcher(payload, container, options.user, options.ssh_config, on_event)


def write_next_step(folder: Path, options: SmokeOptions, request: planning.Request) -> int:
    """The next round, as JSON on standard output."""
    inputs = StepInputs(
        request,
        session_options(options),
        container_of(options, "ansible"),
        expectations_of(options),
    )
    print(json.dumps(next_step(folder, inputs)))
    return 0


def switches_of(texts: list[str]) -> dict[str, str]:
    """{host: switch}. Raises UserError."""
    found: dict[str, str] = {}
    for text in texts:
        switch, sign, nodes = text.partition("=")
        if not sign or not switch:
            raise UserError(f"--switch takes SWITCH=NODES, not {text!r}")
        found |= dict.fromkeys(expand_hosts([nodes]), switch)
    return found


def local_gpus() -> int:
    """GPUs that the driver shows here, or that CUDA_VISIBLE_DEVICES leaves."""
    root = Path("/proc/driver/nvidia/gpus")
    present = len(list(root.iterdir())) if root.is_dir() else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return (
        present
        if visible is None
        else min(present, len([one for one in visible.split(",") if one.strip()]))
    )


class Progress:
    """Prints each phase on standard error before it begins."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def on_event(self, event: Event) -> None:
        phase = event.get("phase")
        if (
            event["e"] == "phase_begin"
            and isinstance(phase, str)
            and phase not in self.seen
            and phase in planning.PHASES
        ):
            self.seen.add(phase)
            print(f"unhang: phase {phase}", file=sys.stderr, flush=True)


def _command() -> str:
    return "unhang smoke " + shlex.join(sys.argv[2:])
