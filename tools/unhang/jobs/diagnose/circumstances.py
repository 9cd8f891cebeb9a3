"""What a report tells of its circumstances: where the job stands, how large it is, what starts it, on which accelerators. They name no cause; they choose from
the catalogue's table `next_steps` what to run next.
"""

from __future__ import annotations

from unhang.jobs.diagnose.endings import unfinished_traceback
from unhang.jobs.diagnose.fitting_remedies import experiments_made, launchers, other_accelerator
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.rules.signs import hang_signs, is_only_told, is_slow, own_errors, speed_falls

# circumstance -> facts any of which tells it
TOLD_BY = {
    "ended-by-slurm": ("slurm_ended",),
    "killed": ("killed", "killed_told"),
    "compiled": ("compiled_told",),
    "error-line": ("error_line",),
    "crashed": ("failure_told", "crash", "aborted"),
    "reboots": ("reboots_told",),
    "local-peer-closed": ("local_peer_closed",),
    "gloo-wait": ("gloo_wait",),
    "gdrcopy": ("gdrcopy_missing",),
    "image-refused": ("image_refused",),
    "preparing": ("preparing_told",),
    "building": ("building_told", "kernels_compiled"),
    "rollout": ("rollout_told",),
    "online-rl": ("online_rl_told",),
    "serving": ("serving_told", "vllm_stall", "server_stands", "sglang_told", "trtllm_told", "lmdeploy_told"),
    "restoring": ("restoring_told",),
    "ending": ("ending_told",),
    "seam": ("seam_told", "every_nth"),
    "steps": ("training_step", "progress_told", "middle_told", "monitored"),
    "start": ("start_told", "rendezvous_told", "store_timeout", "init_start", "bootstrap", "test_device"),
    "rendezvous": ("rendezvous_told", "store_timeout"),
    "launch-failed": ("launch_failed",),
    "started": ("test_device", "init_start", "bootstrap"),
    "met": ("init_complete", "met_told"),
    "peer-gone": ("peer_gone",),
    "etcd": ("etcd_told",),
    "group-device": ("group_device_given",),
    "same-collective": ("same_collective_told",),
    "fewer-nodes-work": ("fewer_nodes_work",),
    "busy": ("load_full_told",),
    "idle": ("load_low_told",),
    "changed": ("changed_told", "driver_changed", "newer_software", "system_updated"),
    "elsewhere": ("elsewhere_told", "other_machine_works"),
    "sometimes": ("sometimes_told",),
    "leftovers": ("since_interrupted", "file_left", "runs_killed_told"),
    "actor-died": ("actor_died",),
    "several-work": ("several_gpus_work",),
    "workers": ("no_workers_works",),
    "some-work": ("some_gpus_work",),
    "windows": ("windows_told",),
    "container": ("container_told", "container", "container_fails"),
    "cpu": ("cpu_told",),
    "pauses": ("pause_told",),
    "network-told": ("network_told",),
    "network-fault": ("network_fault_told",),
    "stages": ("stages_told", "unbatched_message"),
    "forked": ("fork_warned",),
    "fades": ("fading_told",),
    "mpi": ("mpi_told", "mpi_calls_told", "mpi_itself_told"),
    "mpi-itself": ("mpi_itself_told",),
    "own-exchange": ("own_exchange_told",),
    "nightly": ("nightly_told",),
    "kubernetes": ("pods_told",),
    "slurm": ("slurm_told",),
    "ray": ("ray_told", "ray_submit_told"),
    "handed-in": ("ray_submit_told",),
    "has-nccl-log": ("bootstrap", "init_start", "transport"),
    "vllm": ("vllm_told", "vllm_stall", "server_stands"),
    "sglang": ("sglang_told",),
    "trtllm": ("trtllm_told",),
    "torch": ("torch_told",),
    "jax": ("jax_told",),
    "tensorflow": ("tensorflow_told",),
    "mpi-calls": ("mpi_calls_told",),
    "other-framework": ("other_framework_told",),
    "native": ("native_told", "own_exchange_told", "bandwidth_row", "test_device"),
    "eager": ("eager_given",),
    "tests-run": ("tests_told", "bandwidth_row", "average_bandwidth", "test_device"),
    "stacks-given": ("stacks_given",),
    "nccl-warned": ("nccl_warn_line",),
    "mixed-kinds": ("kinds_mixed_told",),
    "another-way-works": ("another_way_works",),
    "another-trainer-works": ("another_trainer_works",),
    "error-told": ("error_told",),
    "much-work": ("much_work_told",),
    "one-sample": ("one_sample_told",),
    "vanished": ("vanished_told", "some_gpus_empty"),
    "memory-limited": ("memory_limit_told",),
    "fewer-parts-work": ("fewer_parts_work",),
    "placement": ("placement_told",),
    "nan": ("nan_told",),
    "pod-waits": ("pod_waits",),
    "fewer-used": ("fewer_used_told",),
    "one-works": ("one_gpu_works", "fewer_works"),
    "served": ("server_stands", "served_told", "middle_told", "overload_told", "near_limit_told"),
    "sharded": ("zero3_told", "sharded_told"),
    "some-counts-work": ("some_gpus_work", "more_gpus_work"),
    "one-process-fails": ("one_process_fails",),
    "little-memory-left": ("memory_share_high",),
    "picture": ("picture_shown",),
    "layers-dropped": ("layers_dropped",),
}  # fmt: skip
# Where several of these are told, the first one says where the job stands.
PHASES = ("ending", "rollout", "serving", "building", "restoring", "seam", "steps", "preparing", "start")
LAUNCHERS_TOLD = {"Slurm": "slurm", "Ray": "ray", "Kubernetes": "kubernetes"}
MAKERS = {"Huawei": "huawei", "AMD": "amd"}
CHANGING = (
    "NCCL_P2P",
    "NCCL_SHM",
    "NCCL_CUMEM",
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_NET",
    "NCCL_LAUNCH",
    "CUDA_LAUNCH",
    "NCCL_NVLS",
)  # change how ranks exchange data
CRASHED_BY = {  # circumstance -> words of the failure's line
    "import-failed": ("No module named ",),
    "program-missing": ("execve(): ", "executable file not found", "could not find the executable", "permission denied"),
    "command-missing": (": command not found",),
    "arguments": ("unrecognized arguments", "the following arguments are required", "no such option", "unknown option", "unexpected argument"),
    "file-missing": ("No such file or directory", "is not found, missing", "FileNotFoundError", "does not exist"),
}
EXITS = ("root_cause", "failed_exit", "aborted")  # reports of a launcher that a process ended
TOLD_FAILURES = ("failure_told", "crash_told", "error_told", "heading_failure")
STACKS = {"stack_process": 2, "rank_in_call": 1, "stack_of_rank": 2}  # facts that show stacks, in the number that is needed
NEAR = 3  # lines between a sentence and the picture that it speaks of
EARLY_SEQ = 50  # a collective so early belongs to start-up


def circumstances(facts: Facts, outcome: str) -> frozenset[str]:
    """The circumstances that are told. outcome: the word of the conclusion."""
    told = {name for name, facts_of in TOLD_BY.items() if any(not event.quoted for one in facts_of for event in facts.of(one))}
    told |= {"rollout"} if "online-rl" in told and "serving" in told else set()
    told -= {"rendezvous"} if "met" in told else set()
    told |= {LAUNCHERS_TOLD[name] for name in launchers(facts) if name in LAUNCHERS_TOLD}
    told -= {"error-told", "picture"} if facts.first_error or own_errors(facts) or _error_follows(facts) else set()
    told |= _surroundings(facts, told) | _state(facts, outcome, told)
    phase = _phase(facts, told)
    return frozenset(told.difference(PHASES) | ({phase} if phase else {"silent"}) | _given(facts, told))


def _error_follows(facts: Facts) -> bool:
    """Whether the error of which somebody tells stands below: "it ends with this error:", and no picture of it."""
    pictures = [event.line for event in facts.of("picture_shown")]
    ends = [event.line for event in facts.of("error_told") if event.text.rstrip().endswith((":", "\uff1a"))]
    return any(not any(line <= shown <= line + NEAR for shown in pictures) for line in ends)


def _given(facts: Facts, told: set[str]) -> set[str]:
    """What the report has already, so that it is not asked for: a log of NCCL, stacks, and processes of which none is left; and programs that are no torch."""
    debug = {(event.fields.get("value") or "").strip("\"'").upper() for event in facts.of("setting") if event.fields.get("name") == "NCCL_DEBUG"}
    found = {"nccl-log-given"} if debug & {"INFO", "TRACE"} or "has-nccl-log" in told else set()
    found |= {"ended"} if told & {"failed", "nccl-error"} else set()
    found |= {"stacks-given"} if any(len(facts.of(fact)) >= number for fact, number in STACKS.items()) else set()
    return found | ({"no-torch"} if told & {"jax", "tensorflow", "other-framework", "native", "mpi-calls"} and "torch" not in told else set())


def _phase(facts: Facts, told: set[str]) -> str | None:
    """Where the job stands. A lone timeout says it by its number; a job whose GPUs compute or that hangs at once on several GPUs stands at its start."""
    if any(event.signature.id == "stops-at-a-seam-reported" and not event.quoted for event in facts.events):
        told = told | {"seam"}
    if facts.of("training_step") or (facts.of("bar") and "slow" not in told):
        told = told - {"restoring"}  # what was loaded before the steps has been loaded
    numbers = [one.seq for one in facts.timeouts if one.seq is not None]
    if numbers and not told & {"ending", "seam", "rollout", "serving", "preparing", "building", "restoring"}:
        return "start" if min(numbers) <= EARLY_SEQ and "steps" not in told else "steps"
    if any((event.fields.get("value") or "").strip() not in ("", "0") for event in facts.of("bar")) and not told & {"preparing", "building"}:
        told = told | {"steps"}
    named = next((one for one in PHASES if one in told and not (one == "preparing" and told & {"busy", "met"})), None)
    at_once = not told & {"failed"} and (told & {"busy", "nodes", "kubernetes"} or facts.of("one_gpu_works"))
    return named or ("start" if at_once else None)


def _surroundings(facts: Facts, told: set[str]) -> set[str]:
    """The size of the job, its accelerators, and what was tried."""
    several = len(facts.hosts) > 1 or any(int(event.fields["value"] or 1) > 1 for event in facts.of("nnodes"))
    several = several or facts.has("pod-with-a-second-container") or bool(facts.of("several_nodes") and not facts.of("elsewhere_told"))
    maker = other_accelerator(facts)
    found = {"nodes" if several else "machine"}
    if maker or "cpu" in told:
        found |= {MAKERS.get(maker or "", "other-accelerator")} if maker else set()
    else:
        found.add("nvidia")
    if experiments_made(facts) or _goes_without_p2p(facts):
        found.add("p2p-tried")
    if any(str(event.fields.get("name")).startswith(CHANGING) for event in facts.of("setting")):
        found.add("settings")
    named = [event for name in ("error_line", "heading_failure") for event in facts.of(name) if "NCCL" in event.text and not event.quoted]
    warned = is_only_told(facts) and any(not event.quoted for event in facts.of("nccl_warn_line")) and not facts.of("hanging_word")
    if facts.of("library_failed") or ((named or warned) and not hang_signs(facts)):
        found.add("nccl-error")
    if facts.has("nccl-internal-check"):
        found.add("nccl-internal")
    came = {one.rank for one in facts.timeouts if one.rank is not None}
    later = [event for event in facts.of("store_count") if int(event.fields.get("group") or 0) > 1 and not event.quoted]  # all had come to the first barrier
    if (came and len(came) < (facts.world_size or 0)) or later:
        found.add("missing")
    return found


def _goes_without_p2p(facts: Facts) -> bool:
    """Whether the log names the paths of NCCL's channels, and none is over peer-to-peer: then it changes nothing to switch that off."""
    paths = [event.fields.get("value") or event.fields.get("old") or "" for event in facts.of("transport")]
    return bool(paths) and not any(path.startswith("P2P") for path in paths)


def _state(facts: Facts, outcome: str, told: set[str]) -> set[str]:
    """Whether the job failed, is slow or hangs; failed also where a person tells of no hang."""
    if told & {"killed", "reboots"}:
        return set()
    first = facts.first_error
    raised = facts.of("crash") or "error-told" in told or (first is not None and first.signature.kind == "error")
    if outcome == "failure" or (raised and not (hang_signs(facts) or is_slow(facts))):
        return {"failed", *_what_is_shown_of_it(facts)} | {name for name, words in CRASHED_BY.items() if _crashed_by(facts, words)}
    if not is_slow(facts):
        return {"failed"} if _is_told_without_a_hang(facts) else {"hangs"}
    return {"slow", *(("fades",) if speed_falls(facts) else ())}


def _what_is_shown_of_it(facts: Facts) -> set[str]:
    """How much of a failure's own output there is: a whole traceback, one that is cut, a launcher's report alone, or a person's words alone."""
    raised, cut = facts.of("crash"), unfinished_traceback(facts) is not None
    if cut or raised:
        return {"cut-traceback"} if cut else {"whole-traceback"}
    if any(not event.quoted for name in EXITS for event in facts.of(name)) and not own_errors(facts):
        return {"only-exits"}
    is_shown = facts.first_error or own_errors(facts) or _error_follows(facts)
    return {"only-told"} if not is_shown and any(facts.of(name) for name in TOLD_FAILURES) else set()


def _is_told_without_a_hang(facts: Facts) -> bool:
    """Whether a person tells what happened without a word of a hang: something is not as it should be. A log that just stops may be one of a hang."""
    return is_only_told(facts) and not (facts.of("hanging_word") or hang_signs(facts) or facts.timeouts or facts.stopped)


def _crashed_by(facts: Facts, words: tuple[str, ...]) -> bool:
    """Whether a line of a failure has one of these words."""
    return any(word in event.text for word in words for name in ("crash", "error_line") for event in facts.of(name) if not event.quoted)
