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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unhang.core.commands.common_options import add_examples, add_format_option, add_repeatable
from unhang.core.errors import UserError
from unhang.core.nodeset import expand_hosts
from unhang.core.path_arguments import checked_output
from unhang.core.verdict.streams import Event, Stream
from unhang.smoke import node_plans as planning
from unhang.smoke.commands.smoke_expectations import expectations_of
from unhang.smoke.commands.smoke_output import deliver, exit_code
from unhang.smoke.container import RUNTIMES, Container, choose_container
from unhang.smoke.cross_check import cross_check
from unhang.smoke.experiments import Experiment, narrowed, plan_experiments, run_experiments
from unhang.smoke.group import SessionOptions, why_busy
from unhang.smoke.launch import Launcher, slurm_launcher, ssh_launcher
from unhang.smoke.local import free_port, run_local, survey_here
from unhang.smoke.local_hosts import LocalHosts, one_host, run_hosts, several_hosts
from unhang.smoke.payload_zip import payload_bytes
from unhang.smoke.result import judge
from unhang.smoke.session import follow, smoke_session
from unhang.smoke.smoke_folder import StepInputs, next_step, read_result
from unhang.smoke.switches import read_switches

FORMATS = ("table", "json", "junit")
EXAMPLES = """\
  unhang smoke --local                                    the GPUs of this machine
  unhang smoke --hosts 'gpu[01-08]'                       eight nodes over ssh, and which of them it is when it fails
  unhang smoke --hosts 'gpu[01-08]' --launcher slurm --srun=--partition=gpu -o junit"""  # noqa: E501


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _add_places(parser)
    _add_ranks(parser)
    _add_tests(parser)
    add_format_option(parser, FORMATS)
    parser.add_argument("--out", metavar="FILE", help="also write the JSON result to this file")
    add_examples(parser, EXAMPLES)


def _add_places(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--local", action="store_true", help="test this machine (default)")
    as_hosts = (
        "run as N hosts on this machine, so that NCCL uses its network transport between them"
        " (default: one host)"
    )
    parser.add_argument("--as-hosts", type=int, metavar="N", help=as_hosts)
    add_repeatable(
        parser, "--hosts", "NODES", "test these nodes: names or node sets, for example gpu[01-08]"
    )
    parser.add_argument(
        "--launcher",
        choices=("fabric", "slurm"),
        default="fabric",
        help="how to start on --hosts: fabric is ssh (default), slurm is srun",
    )
    add_repeatable(
        parser,
        "--srun",
        "OPTION",
        "option for srun, for example --srun=--partition=gpu --srun=--gres=gpu:8",
    )
    beside = "start although processes or jobs use the GPUs; without it such a node takes no part"
    parser.add_argument("--beside-jobs", action="store_true", help=beside)
    # the playbook: read a session's folder, write its next step, start nothing
    parser.add_argument("--step-in", metavar="FOLDER", help=argparse.SUPPRESS)
    # the playbook: show the result of a session's folder
    parser.add_argument("--show-in", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--user", help="user name for ssh")
    parser.add_argument(
        "--ssh-config",
        metavar="FILE",
        help="configuration file for ssh instead of the default ones",
    )
    parser.add_argument(
        "--known-hosts",
        metavar="FILE",
        help="known_hosts file for ssh instead of the default ones; unknown keys are refused",
    )
    parser.add_argument("--identity", metavar="FILE", help="private key for ssh")
    add_repeatable(parser, "--switch", "SWITCH=NODES", "the nodes of one switch, for isolation")
    parser.add_argument(
        "--inventory",
        metavar="PATH",
        help=(
            "an inventory that names the switches: variable unhang_switch, or groups leaf* and"
            " switch*"
        ),
    )
    parser.add_argument(
        "--isolate",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="after a failure of three or more nodes, find the faulty one",
    )
    parser.add_argument(
        "--search-timeout",
        type=float,
        metavar="SECONDS",
        default=1200.0,
        help="time for experiments and isolation (default: %(default)s)",
    )


def _add_ranks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--nproc",
        type=int,
        metavar="N",
        help="ranks per node (default: one per GPU; 2 without GPUs)",
    )
    parser.add_argument(
        "--backend",
        choices=("auto", "nccl", "gloo"),
        default="auto",
        help="auto (default): nccl on nodes with GPUs, else gloo",
    )
    parser.add_argument(
        "--phases",
        metavar="NAMES",
        help=(
            "only these phases, or +NAME in addition to the default ones:"
            f" {', '.join(planning.PHASES)}"
        ),
    )
    parser.add_argument("--python", metavar="PATH", help="the Python with the users' torch")
    parser.add_argument(
        "--container-image",
        metavar="IMAGE",
        help="run in this image; --python is then a path in the image",
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
    parser.add_argument(
        "--port", type=int, metavar="PORT", help="port of the rendezvous (default: a free port)"
    )


def _add_tests(parser: argparse.ArgumentParser) -> None:
    stalled = (
        "time after which a collective counts as stalled (default: 10, more for large messages)"
    )
    parser.add_argument("--step-timeout", type=float, metavar="SECONDS", help=stalled)
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        default=planning.TOTAL_TIMEOUT_S,
        help="time for the whole test (default: %(default)s)",
    )
    parser.add_argument(
        "--max-size",
        metavar="SIZE",
        help="largest message, for example 64M (default: as memory allows)",
    )
    parser.add_argument(
        "--sizes",
        metavar="SIZE,...",
        help=(
            "message sizes of the bandwidth phase (default: 1M,32M,256M,1G; without GPUs 64K,1M,8M)"
        ),
    )
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="a setting for all ranks"
    )
    add_repeatable(parser, "--rank-env", "RANK:NAME=VALUE", "a setting for one rank")
    # a fault to cause on purpose, one of planning.FAULTS, for a RANK, a HOST, HOST+HOST together,
    # or every group of at least *N nodes
    parser.add_argument(
        "--drill", action="append", default=[], metavar="WHO:FAULT[:PHASE]", help=argparse.SUPPRESS
    )
    parser.add_argument(
        "--experiments",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="after a failure, search for a setting that avoids it",
    )
    earlier = "JSON results of earlier tests, or folders of them, to compare the bandwidth with"
    parser.add_argument("--baseline", action="append", default=[], metavar="PATH", help=earlier)
    measured = (
        "a policy whose key bandwidth sets the expected bandwidth (unhang policy --smoke writes it)"
    )
    parser.add_argument("--policy", metavar="FILE", help=measured)
    # the playbook has the same key
    parser.add_argument("--policy-bandwidth", metavar="JSON", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """0 pass, 1 fail with suspects, 2 nothing could be proved."""
    request = request_of(arguments)
    if arguments.out:
        checked_output(arguments.out)
    ways = {
        "--local": arguments.local,
        "--hosts": arguments.hosts,
        "--step-in": arguments.step_in,
        "--show-in": arguments.show_in,
    }
    chosen = [name for name, given in ways.items() if given] or ["--local"]
    if len(chosen) > 1:
        raise UserError(f"expected one of {', '.join(ways)}, found {' and '.join(chosen)}")
    if arguments.as_hosts is not None and chosen != ["--local"]:
        raise UserError(f"--as-hosts: expected --local beside it, found {chosen[0]}")
    if chosen == ["--step-in"]:
        return write_next_step(arguments, request)
    if chosen == ["--show-in"]:
        result = read_result(Path(arguments.show_in))
    else:
        started, began = datetime.datetime.now(datetime.UTC), time.monotonic()
        result = (
            smoke_here(arguments, request)
            if chosen == ["--local"]
            else smoke_there(arguments, request)
        )
        name = "local" if chosen == ["--local"] else arguments.launcher
        result |= {"launcher": name, "started": started.isoformat(timespec="seconds")}
        result |= {"duration_s": round(time.monotonic() - began, 2), "command": _command()}
    deliver(result, arguments)
    return exit_code(result)


def request_of(arguments: argparse.Namespace) -> planning.Request:
    """The request of the options. Raises UserError for a contradiction."""
    for option in ("nproc", "port", "step_timeout", "timeout", "search_timeout"):
        name, value = f"--{option.replace('_', '-')}", getattr(arguments, option)
        if value is not None and value <= 0:
            raise UserError(f"{name}: expected a number above 0, found {value}")
    if arguments.port and arguments.port > 65535:
        raise UserError(f"--port: expected a port up to 65535, found {arguments.port}")
    return planning.Request(
        backend=arguments.backend,
        phases=planning.parse_phases(arguments.phases) if arguments.phases else None,
        step_timeout_s=arguments.step_timeout,
        total_timeout_s=arguments.timeout,
        max_bytes=planning.parse_size(arguments.max_size) if arguments.max_size else None,
        bandwidth_bytes=tuple(map(planning.parse_size,
        arguments.sizes.split(","))) if arguments.sizes else None,
        python=None if arguments.container_image else arguments.python,
        drills=tuple(map(planning.parse_drill, arguments.drill)),
        environment=planning.parse_settings(arguments.env, "--env"),
        rank_environment=planning.parse_rank_settings(arguments.rank_env),
    )  # fmt: skip


def smoke_here(arguments: argparse.Namespace, request: planning.Request) -> dict[str, Any]:
    """The smoke test on this machine, experiments included."""
    payload = payload_bytes()
    container = container_of(arguments, "local")
    backend = request.backend if request.backend != "auto" else "nccl" if local_gpus() else "gloo"
    if backend == "nccl" and not arguments.beside_jobs and (busy := why_busy(survey_here(payload))):
        raise UserError(f"{os.uname().nodename}: {busy}")
    here = hosts_here(arguments, backend)
    request = here.request(request)
    port = arguments.port or free_port()
    progress = Progress()

    def go(wanted: planning.Request, members: Sequence[planning.Member], at: int) -> list[Stream]:
        plans = planning.plan_group(wanted, members, "127.0.0.1", at)
        command = container.argv() if container else None
        return run_hosts(plans, lambda node: run_local(node, payload, command, progress.on_event))

    # read before anything is started, so that a missing file is reported at once
    expectations = expectations_of(arguments)
    result = judge(go(request, here.members, port), expectations)
    result["rendezvous"] = {
        "host": here.members[0].host,
        "address": "127.0.0.1",
        "port": port,
        "interface": "lo",
        "why": "one machine, its loopback",
    }
    if (
        backend == "nccl"
        and result["verdict"] == "pass"
        and len(here.members) == 1
        and not arguments.container_image
    ):
        result["cross_check"] = _checked_by_nccl_tests(result, request, here.members[0].nproc)
    if arguments.experiments:

        def attempt(experiment: Experiment, phase: str) -> tuple[str, float]:
            began = time.monotonic()
            group = (
                [dataclasses.replace(here.members[0], nproc=1)]
                if experiment.alone
                else here.members
            )
            return (
                judge(go(narrowed(request, phase, experiment), group, free_port()))["verdict"],
                time.monotonic() - began,
            )

        result["experiments"] = run_experiments(result, plan_experiments(backend), attempt)
    return result


def _checked_by_nccl_tests(result: Mapping[str, Any], request: planning.Request, nproc: int) -> Any:
    """The result, with the bandwidths of nccl-tests with the same libnccl and settings added."""
    library = next((one.get("path") for one in result["hosts"][0]["nccl"]), None)
    settings = {name: value for name, value in request.environment.items() if value is not None}
    return cross_check(result["collectives"], nproc, settings, library)


def hosts_here(arguments: argparse.Namespace, backend: str) -> LocalHosts:
    """This machine, or the hosts that it simulates. Raises UserError."""
    host, interface = os.uname().nodename, "lo" if backend == "gloo" else None
    if arguments.as_hosts is None:
        return one_host(host, arguments.nproc or local_gpus() or 2, interface)
    gpus = (
        os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(local_gpus())))
    ).split(",")
    return several_hosts(
        host, arguments.as_hosts, gpus if backend == "nccl" else [], arguments.nproc, interface
    )


def smoke_there(arguments: argparse.Namespace, request: planning.Request) -> dict[str, Any]:
    """The smoke test over nodes that ssh or Slurm reaches."""
    hosts = expand_hosts(arguments.hosts)
    options = session_options(arguments)
    launcher = launcher_of(arguments)
    expectations = expectations_of(arguments)
    return follow(
        smoke_session(hosts, launcher.survey(hosts), request, options, expectations), launcher.run
    )


def session_options(arguments: argparse.Namespace) -> SessionOptions:
    """The options about experiments after a failure. Raises UserError."""
    switches = (read_switches(arguments.inventory) if arguments.inventory else {}) | switches_of(
        arguments.switch
    )
    return SessionOptions(
        arguments.nproc,
        arguments.port,
        arguments.experiments,
        arguments.isolate,
        switches,
        arguments.search_timeout,
        arguments.beside_jobs,
    )


def container_of(arguments: argparse.Namespace, launcher: str) -> Container | None:
    """The image to run in, if one is named. Raises UserError."""
    gpus = arguments.backend != "gloo"
    return choose_container(
        arguments.container_image,
        arguments.container_runtime,
        arguments.python,
        arguments.container_option,
        launcher,
        gpus,
    )


def launcher_of(arguments: argparse.Namespace) -> Launcher:
    """The launcher that reaches the nodes (ssh, Slurm). Raises UserError for missing files or
    programs."""
    payload = payload_bytes()
    container = container_of(arguments, arguments.launcher)
    on_event = Progress().on_event
    if arguments.launcher == "slurm":
        return slurm_launcher(payload, container, arguments.srun, on_event)
    files = {
        "ssh_config": arguments.ssh_config,
        "known_hosts": arguments.known_hosts,
        "identity": arguments.identity,
    }
    return ssh_launcher(payload, container, arguments.user, files, on_event)


def write_next_step(arguments: argparse.Namespace, request: planning.Request) -> int:
    """The next round, as JSON on standard output."""
    inputs = StepInputs(
        request,
        session_options(arguments),
        container_of(arguments, "ansible"),
        expectations_of(arguments),
    )
    print(json.dumps(next_step(Path(arguments.step_in), inputs)))
    return 0


def switches_of(texts: list[str]) -> dict[str, str]:
    """{host: switch}. Raises UserError."""
    found: dict[str, str] = {}
    for text in texts:
        switch, sign, nodes = text.partition("=")
        if not sign or not switch:
            raise UserError(f"--switch: expected SWITCH=NODES, found {text!r}")
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

    def on_event(self, host: str, event: Event) -> None:
        del host
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
