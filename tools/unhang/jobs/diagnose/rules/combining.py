"""Causes that follow from several facts together: ranks that differ, work that was in progress, a hang without a message.

Each rule is a function facts -> evidence, with the same weights as signatures. The order does not matter; rules are independent of each other. A rule stays
if it decides logs that it was not learnt from (each docstring names them), or if it reads a document that no single line decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from unhang.jobs.diagnose.evidence import Evidence
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.rules import collective_rules as collective
from unhang.jobs.diagnose.rules import device_rules as device
from unhang.jobs.diagnose.rules import failures
from unhang.jobs.diagnose.rules import guard_rules as guard
from unhang.jobs.diagnose.rules import memory_rules as memory
from unhang.jobs.diagnose.rules import network_rules as network
from unhang.jobs.diagnose.rules import post_rules as post
from unhang.jobs.diagnose.rules import recording_rules as recording
from unhang.jobs.diagnose.rules import work_rules as work

RULES: tuple[Callable[[Facts], Iterator[Evidence]], ...] = (
    failures.rank_failed_first,
    failures.rank_was_killed,
    failures.scheduler_ended_the_job,
    collective.ranks_called_different_things,
    collective.ranks_wait_in_one_collective,
    collective.stages_wait_for_messages,
    collective.ranks_had_queued_unlike_work,
    collective.waited_after_the_end,
    collective.one_rank_says_something_else,
    collective.rank_answers_no_signal,
    recording.recorders_differ,
    recording.traces_differ,
    recording.ranks_call_in_unlike_order,
    recording.few_ranks_are_behind,
    recording.stacks_stand_in_different_collectives,
    recording.one_stack_waits_for_its_data,
    recording.named_ranks_stand_in_different_calls,
    work.work_was_going_on,
    work.main_process_prepares,
    work.bar_still_moved,
    work.steps_wait_for_their_data,
    work.service_blocks_a_rank,
    work.build_did_not_end,
    work.some_ranks_never_started,
    work.llmc_stopped_before_first_step,
    work.list_of_hosts_is_uneven,
    work.versions_of_hosts_differ,
    work.ranks_share_a_core,
    device.peer_to_peer_went_silent,
    device.cards_without_peer_access,
    device.no_peer_access,
    device.known_bad_driver_and_hang,
    device.old_kernel_and_hang,
    device.several_nccl_libraries,
    device.small_shared_memory,
    device.container_sees_no_gpu,
    device.gpu_is_newer_than_the_build,
    device.link_has_fewer_lanes,
    device.link_is_slower_than_the_card,
    device.busy_gpu_has_a_slow_link,
    memory.memory_held_by_others,
    memory.memory_is_the_own_of_one_process,
    memory.checkpoint_is_loaded_onto_one_gpu,
    memory.processes_hold_equal_parts,
    memory.ranks_share_a_gpu,
    memory.processes_share_a_gpu,
    memory.all_processes_hold_one_gpu,
    memory.memory_runs_out_where_all_processes_are,
    network.unreachable_interface,
    network.nodes_meet_at_unlike_addresses,
    network.machine_waits_for_itself,
    network.loopback_is_named,
    network.machines_share_a_name,
    network.ranks_meet_at_loopback,
    network.rdma_not_used,
    network.bridge_among_the_sockets,
    network.chosen_among_several_and_refused,
    network.gpudirect_on_some_hosts,
    network.amazon_plugin_is_not_used,
    post.situations_described,
    post.work_is_longer_than_the_limit,
    post.container_is_what_differs,
    post.ranks_were_seen_in_different_calls,
    guard.links_are_all_used,
    guard.duplicate_gpu_is_mig,
    guard.name_was_found_later,
    guard.name_leads_nowhere,
    guard.ranks_had_met_before,
    guard.more_joined_than_the_world,
    guard.one_machine_needs_no_network,
    guard.rendezvous_failed_before_any_rank,
    guard.each_task_is_a_job_of_its_own,
    guard.each_task_starts_a_launcher,
    guard.local_rank_is_given_as_rank,
    guard.memory_of_the_host_is_free,
    guard.locked_memory_has_no_limit,
    guard.job_itself_takes_the_port,
    guard.interface_was_named_in_vain,
    guard.leftovers_need_an_earlier_job,
    guard.buffers_are_too_large,
)


@lru_cache(maxsize=1)
def combined_evidence(facts: Facts) -> tuple[Evidence, ...]:
    """The evidence of all rules; the ranking and the outcome both ask for it."""
    return tuple(one for rule in RULES for one in rule(facts))
