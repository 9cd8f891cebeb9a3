"""Causes that follow from several facts together: ranks that differ, work that was in progress, a
hang without a message.

Each rule is a function facts -> evidence, with the same weights as signatures. The order does not
matter; rules are independent of each other. A rule stays if it decides logs or keeps a healthy one
silent. Its docstring names them below tests/fixtures; a log of a batch by the first part of its
folder's name. A test takes each rule away and looks at these logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from unhang.core.catalogue.own_tables import table
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.meaning.evidence import Evidence
from unhang.jobs.diagnose.meaning.rules import collective_rules as collective
from unhang.jobs.diagnose.meaning.rules import device_rules as device
from unhang.jobs.diagnose.meaning.rules import failures
from unhang.jobs.diagnose.meaning.rules import guard_rules as guard
from unhang.jobs.diagnose.meaning.rules import memory_rules as memory
from unhang.jobs.diagnose.meaning.rules import network_rules as network
from unhang.jobs.diagnose.meaning.rules import recording_rules as recording
from unhang.jobs.diagnose.meaning.rules import stack_rules as stack
from unhang.jobs.diagnose.meaning.rules import time_rules as time
from unhang.jobs.diagnose.meaning.rules import work_rules as work
from unhang.jobs.diagnose.meaning.signs import hang_signs


def facts_together(facts: Facts) -> Iterator[Evidence]:
    """What two facts tell that neither tells alone, by the rows of joined_facts.

    Decides diagnose_batches/10/044, diagnose/kernel_too_old/interrupted, diagnose_batches/6/372,
    diagnose_documented/gpu_nccl_torch_2/mig-slices-same-parent, diagnose_batches/1/053,
    diagnose_batches/5/392, diagnose_batches/13/e30, diagnose_batches/14/f02,
    diagnose_user_jobs/master-address-is-two-addresses, diagnose/slow_rank_or_io/zero-first,
    diagnose_batches/1/135, diagnose_outputs/pcie_and_gpus/topo-p2p-ns, diagnose_batches/15/g19,
    diagnose/unsupported_p2p_geforce/direct-pointer.
    """
    signs = hang_signs(facts)
    for row in table("joined_facts").values():
        lines = [one for name in row["facts"] for one in [*facts.of(name), *facts.has(name)][:1]]
        if (
            len(lines) == len(row["facts"])
            and (signs or not row["hangs"])
            and not facts.has(*row["unless"])
        ):
            why = row["why"].format(*(one.fields for one in lines))
            yield Evidence(row["cause"], row["weight"], why, (*lines, *signs[:1]), row["id"])


RULES: tuple[Callable[[Facts], Iterator[Evidence]], ...] = (
    facts_together,
    failures.rank_failed_first,
    failures.rank_ended_without_a_word,
    failures.scheduler_ended_the_job,
    collective.ranks_called_different_things,
    collective.ranks_wait_in_one_collective,
    collective.one_rank_says_something_else,
    collective.rank_answers_no_signal,
    recording.recorders_differ,
    recording.traces_differ,
    recording.ras_names_ranks,
    stack.rank_stands_elsewhere,
    stack.rank_has_no_stack,
    stack.ranks_stand_in_different_collectives,
    work.work_was_going_on,
    work.bar_still_moved,
    work.steps_wait_for_their_data,
    work.build_did_not_end,
    work.some_ranks_never_started,
    work.list_of_hosts_is_uneven,
    work.ranks_have_two_rendezvous,
    work.versions_of_hosts_differ,
    work.ranks_share_a_core,
    time.port_loses_its_link,
    time.switch_reports_an_error,
    time.rank_went_silent,
    device.peer_to_peer_went_silent,
    device.several_nccl_libraries,
    device.link_is_slower_than_the_card,
    memory.memory_held_by_others,
    memory.processes_hold_equal_parts,
    memory.ranks_share_a_gpu,
    memory.rank_changes_its_gpu,
    memory.all_processes_hold_one_gpu,
    network.unreachable_interface,
    network.rdma_not_used,
    network.gpudirect_on_some_hosts,
    guard.links_are_all_used,
    guard.name_was_found_later,
    guard.more_joined_than_the_world,
    guard.one_machine_needs_no_network,
)


@lru_cache(maxsize=1)
def combined_evidence(facts: Facts) -> tuple[Evidence, ...]:
    """The evidence of all rules; the ranking and the outcome both ask for it."""
    return tuple(one for rule in RULES for one in rule(facts))
