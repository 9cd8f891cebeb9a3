"""Causes that follow from several facts together: ranks that differ, work that was in progress, a hang without a message.

Each rule is a function facts -> evidence, with the same weights as signatures. The order does not matter; rules are independent of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from unhang.diagnose.evidence import Evidence
from unhang.diagnose.log_facts import Facts
from unhang.diagnose.rules import absence_rules as absences
from unhang.diagnose.rules import address_rules as addresses
from unhang.diagnose.rules import container_rules as containers
from unhang.diagnose.rules import coordination_rules as coordination
from unhang.diagnose.rules import count_rules as counts
from unhang.diagnose.rules import description_rules as descriptions
from unhang.diagnose.rules import failures
from unhang.diagnose.rules import host_rules as hosts
from unhang.diagnose.rules import machine_rules as machines
from unhang.diagnose.rules import memory_rules as memory
from unhang.diagnose.rules import network_rules as networks
from unhang.diagnose.rules import output_rules as outputs
from unhang.diagnose.rules import peer_rules as peers
from unhang.diagnose.rules import placement_rules as placement
from unhang.diagnose.rules import progress_rules as progress
from unhang.diagnose.rules import rank_rules as ranks
from unhang.diagnose.rules import setting_rules as settings
from unhang.diagnose.rules import shape_rules as shapes
from unhang.diagnose.rules import stack_rules as stacks
from unhang.diagnose.rules import statement_rules as statements

RULES: tuple[Callable[[Facts], Iterator[Evidence]], ...] = (
    failures.rank_failed_first,
    failures.rank_was_killed,
    ranks.ranks_called_different_things,
    ranks.recorders_differ,
    ranks.traces_differ,
    ranks.ranks_share_a_gpu,
    ranks.processes_share_a_gpu,
    ranks.processes_hold_the_first_gpu_too,
    ranks.all_processes_hold_one_gpu,
    ranks.steps_wait_for_data,
    ranks.llmc_stopped_before_first_step,
    ranks.build_did_not_end,
    ranks.work_was_going_on,
    ranks.bar_still_moved,
    ranks.weights_were_loading,
    ranks.limit_ran_out_everywhere,
    peers.peer_to_peer_went_silent,
    machines.multicast_went_silent,
    machines.iommu_refused_and_hang,
    peers.known_bad_driver_and_hang,
    machines.old_kernel_and_hang,
    machines.several_nccl_libraries,
    machines.port_down_and_fault,
    machines.small_shared_memory,
    peers.no_peer_access,
    machines.links_flap,
    machines.pcie_errors_pile_up,
    machines.unreachable_interface,
    machines.gpudirect_wanted_and_off,
    machines.gpudirect_on_some_hosts,
    peers.cards_without_peer_access,
    machines.fabric_of_nvswitch_board,
    machines.fabric_waits_for_another_manager,
    machines.container_sees_no_gpu,
    machines.compat_libraries_and_refused,
    peers.peer_to_peer_off_and_it_runs,
    machines.build_was_interrupted,
    machines.some_gpus_idle,
    machines.one_gpu_has_fewer_links,
    machines.links_are_all_used,
    machines.torch_newer_than_driver,
    machines.compiler_was_killed,
    machines.waits_inside_nccl,
    peers.several_gpus_hang_and_one_works,
    peers.busy_without_end,
    ranks.decided_by_each_rank,
    stacks.stacks_stand_in_different_collectives,
    stacks.one_stack_waits_for_its_data,
    networks.sidecar_takes_connections,
    networks.gpudirect_and_protection_error,
    placement.some_ranks_never_started,
    placement.guessed_gpu_and_another_communicator,
    placement.one_gpu_per_task_and_no_ipc,
    placement.one_gpu_per_task_and_shared_memory,
    placement.geforce_and_gpudirect,
    placement.one_rank_waits_for_a_build,
    networks.rdma_not_used,
    networks.two_interfaces_lead_to_one_network,
    networks.hosts_meet_in_different_networks,
    networks.hosts_use_different_plugins,
    networks.chosen_among_several_and_refused,
    networks.ports_behind_a_working_ping,
    networks.locked_memory_low_and_refused,
    networks.no_gpudirect_between_nodes,
    networks.ethernet_beside_infiniband,
    progress.rank_outside_collectives,
    progress.one_rank_is_silent,
    progress.one_rank_reports_alone,
    progress.interrupted_in_the_data_loader,
    progress.connected_but_never_accepted,
    progress.wrong_numbers_over_peer_to_peer,
    progress.waited_after_the_end,
    memory.memory_held_by_others,
    memory.memory_is_the_own_of_one_process,
    memory.processes_hold_equal_parts,
    memory.segments_of_dead_processes,
    memory.large_shared_memory_is_full,
    memory.full_and_no_process_listed,
    outputs.peer_to_peer_is_slower_than_none,
    outputs.memlock_lower_in_the_job,
    outputs.chosen_interface_is_down,
    outputs.interfaces_of_unlike_mtu,
    outputs.one_process_has_two_nccl,
    outputs.adapter_without_address,
    outputs.duplicate_gpu_is_mig,
    outputs.device_of_a_mig_job_is_missing,
    outputs.containers_have_a_larger_mtu,
    outputs.listens_elsewhere,
    outputs.two_nodes_one_rank_zero,
    outputs.driver_below_what_torch_needs,
    coordination.local_ranks_were_late,
    coordination.store_of_this_host_is_silent,
    coordination.proxy_and_nobody_met,
    coordination.process_stood_still,
    coordination.one_rank_did_not_come_to_gloo,
    coordination.every_rank_refused_alike,
    coordination.rank_left_in_silence,
    addresses.hosts_have_one_address,
    addresses.failed_outside_the_launch,
    addresses.own_name_leads_to_loopback,
    addresses.name_unknown_and_no_answer,
    hosts.list_of_hosts_is_uneven,
    hosts.host_of_the_list_is_missing,
    hosts.ranks_share_a_core,
    hosts.link_has_fewer_lanes,
    hosts.versions_of_hosts_differ,
    hosts.few_gpus_work_and_more_do_not,
    hosts.module_missing_and_no_cuda,
    hosts.shares_of_data_differ,
    settings.peer_to_peer_switched_off,
    settings.slow_and_held_back,
    settings.launches_wait_for_each_other,
    ranks.collective_in_a_branch_of_one_rank,
    peers.driver_package_upgraded_and_hang,
    peers.steps_worked_and_another_library_does,
    shapes.tasks_run_alone,
    shapes.settings_of_processes_differ,
    shapes.ranks_of_a_host_over_the_network,
    shapes.one_rank_says_something_else,
    shapes.late_rank_goes_on,
    shapes.other_end_went_away,
    statements.work_is_longer_than_the_limit,
    statements.no_space_although_disks_have_space,
    statements.container_is_what_differs,
    statements.machine_is_what_differs,
    statements.updated_and_tools_fail,
    statements.part_of_one_rank_and_hang,
    statements.older_cards_without_peer_access,
    statements.card_is_newer_than_cuda,
    descriptions.situations_described,
    absences.rank_answers_no_signal,
    absences.ranks_tell_of_different_worlds,
    absences.nobody_sends,
    absences.one_rank_waits_alone_in_gloo,
    absences.one_rank_waits_and_the_launcher_ends_the_others,
    counts.few_ranks_are_behind,
    counts.not_all_arrived,
    counts.ranks_are_at_different_batches,
    counts.ranks_gave_up_in_different_calls,
    counts.adapters_of_unlike_mtu,
    counts.parameter_servers_wait_for_nodes,
    counts.amazon_plugin_is_not_used,
    counts.store_counts_more_than_the_world,
    counts.two_hosts_have_one_node_rank,
    counts.each_task_starts_a_launcher,
    settings.named_interface_is_there,
    memory.memory_is_its_own_by_number,
    memory.nameless_process_holds_the_gpu,
    hosts.module_built_for_another_kernel,
    machines.torch_names_another_nccl,
    memory.little_is_free_at_the_start,
    memory.container_has_the_default_of_shm,
    hosts.one_cpu_is_busy_and_the_others_idle,
    hosts.ranks_run_outside_the_list,
    settings.file_of_another_machine,
    settings.mps_and_buffers_refused,
    settings.named_adapter_is_not_there,
    networks.stranger_closed_a_connection,
    networks.firewall_is_on_and_no_way,
    settings.rdma_switched_off,
    containers.device_is_not_in_the_container,
    containers.container_was_started_without_gpus,
    containers.interposer_hides_peers,
    memory.requests_of_a_scan_fill_the_memory,
    networks.efa_behind_rules_for_addresses,
    containers.virtual_gpu_lacks_a_feature,
    placement.process_changed_its_gpu,
    placement.one_job_for_each_machine,
)


@lru_cache(maxsize=1)
def combined_evidence(facts: Facts) -> tuple[Evidence, ...]:
    """The evidence of all rules; the ranking and the outcome both ask for it."""
    return tuple(one for rule in RULES for one in rule(facts))
