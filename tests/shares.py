# ruff: noqa: E501
"""Which share of dear families of cases `make test` runs; `make test-long` runs all.

A case is here where its neighbours, or a test on a floor below, see the same defect: policies in a
loop that is one for all, signals with one worker and with two, examples whose parts are tested.
Never here: kernel against oracle, the auditor, recorded runs of one card as a whole, statistics.
"""

from __future__ import annotations

import pytest

EVERY = {
    "hwmodel/kernel/test_refresh.py::test_each_bank_has_its_refreshes": 3,
    "hwmodel/measure/test_closed_forms.py::test_all_bank_refresh_costs_a_sequential_stream_what_the_closed_form_says": 3,
    "hwmodel/measure/test_closed_forms.py::test_no_run_is_faster_than_its_own_command_counts_allow": 3,
    "hwmodel/measure/test_closed_forms.py::test_rotating_single_row_accesses_reach_the_closed_form": 3,
    "hwmodel/measure/test_closed_forms.py::test_sequential_reads_reach_99_percent_of_peak_without_refresh": 3,
    "hwmodel/oracle/test_audit.py::test_auditor_accepts_the_oracle_on_shipped_memories": 3,
    "policies/allocators/test_allocator_contract.py::TestEveryAllocator::test_keeps_the_contract_in_random_lives": 2,
    "policies/allocators/test_cached_windows.py::test_what_is_found_is_what_was_written": 3,
    "policies/allocators/test_paged.py::test_nobody_finds_what_others_wrote": 3,
    "policies/allocators/test_vattention.py::test_serves_under_both_engines": 3,
    "policies/allocators/test_windows.py::test_what_a_request_attends_to_lies_where_it_says": 3,
    "policies/engines/test_speculation.py::test_drafts_make_the_same_tokens_in_fewer_steps_with": 4,
    "policies/engines/test_vllm_schedules.py::test_every_step_is_that_of_vllm": 4,
    "policies/memory/test_measured.py::test_no_agreement_is_lost": 3,
    "policies/memory/test_sparse.py::test_what_is_served_is_what_is_simulated": 3,
    "policies/memory/test_step_work.py::test_streams_have_the_bytes_of_the_work": 3,
    "policies/memory/test_streams.py::test_every_step_moves_what_it_must": 4,
    "policies/memory/test_windows.py::test_every_policy_serves_windows_under_both_engines": 3,
    "policies/serving/test_dropping_beside.py::test_every_byte_of_kv_is_in_one_place": 4,
    "policies/serving/test_lending_beside.py::test_every_byte_of_kv_is_somewhere_once": 4,
    "policies/serving/test_migration_beside.py::test_every_byte_of_kv_is_in_one_place": 4,
    "policies/serving/test_moving.py::test_every_byte_of_kv_is_in_one_place_across_drops_moves_and_aborts": 3,
    "policies/serving/test_moving.py::test_every_byte_of_kv_is_in_one_place_under_any_scheduler": 4,
    "policies/serving/test_options.py::test_it_moves_its_number": 4,
    "policies/serving/test_pairs.py::test_a_pair_does_what_the_page_says": 3,
    "policies/serving/test_pairs.py::test_each_feature_leaves_its_trace_alone": 2,
    "policies/serving/test_pairs.py::test_what_deployments_combine_runs": 2,
    "policies/serving/test_recorder.py::test_recording_changes_no_figure": 4,
    "policies/serving/test_recorder.py::test_replicas_share_logs": 3,
    "policies/serving/test_serving.py::TestEveryPolicy::test_sampled_is_the_same_together_and_one_by_one": 4,
    "policies/serving/test_serving.py::TestEveryPolicy::test_serves_everybody_in_finite_time": 2,
    "policies/serving/test_serving.py::TestEveryPolicy::test_steps_advanced_together_are_the_single_steps": 3,
    "policies/serving/test_sessions.py::test_every_policy_sends_a_turn_a_pause_after_the_last_answer": 4,
    "policies/serving/test_states.py::test_all_requests_of_a_hybrid_end_under_a_policy": 4,
    "policies/test_records.py::test_does_a_run_give_the_records_that_it_gave": 2,
    "policies/transfers/test_connectors.py::test_a_card_of_a_fleet_that_fails_keeps_what_is_below_it": 3,
    "policies/transfers/test_connectors.py::test_of_layers_with_a_window_the_window_moves": 3,
    "policies/transfers/test_connectors.py::test_tiers_go_with_every_scheduler": 3,
    "sweeps/ask/test_low_bandwidth.py::test_the_largest_cause_is_the_one_that_the_trace_was_built_for": 3,
    "sweeps/ask/test_sizing.py::test_any_policy_is_sized_and_only_paging_is_asked_about_gather": 3,
    "sweeps/cli/test_schema.py::test_each_is_a_schema": 4,
    "sweeps/report/test_vega.py::test_every_chart_is_a_picture_of_each_kind": 3,
    "sweeps/report/test_vega.py::test_every_chart_is_valid_and_compiles": 3,
    "test_examples.py::test_an_example_prints_its_answer": 3,
}  # fmt: skip
"""Of a family's cases, in the order of collection, each n-th."""

LONG_ALONE = frozenset({
    "policies/allocators/test_adaptation.py::TestOnADriftingTrace",
    "policies/memory/test_full_memory.py::test_sampled_agrees_with_full_on_drawn_steps",
    "policies/memory/test_full_memory.py::test_what_a_layer_loses_grows_with_the_root_of_its_length",
    "policies/memory/test_real_memory.py::test_tiles_dealt_in_turn_are_faster_than_slices_of_a_layer",
    "sweeps/ask/test_sizing.py::test_a_sweep_agrees_with_the_load_that_was_found",
    "sweeps/cli/test_devices_page.py::test_quickstart_answers_for_it",
    "sweeps/cli/test_export.py::test_weights_go_round_the_channels_and_times_may_be_left_out",
    "sweeps/cli/test_memory_commands.py::test_a_curve_prints_a_table_and_a_verdict_and_writes_its_page",
    "sweeps/cli/test_pictures.py::test_every_figure_is_drawn",
    "sweeps/cli/test_plugin_option.py::test_check_and_schema_see_it",
    "sweeps/cli/test_wheel.py::test_the_command_works_from_any_folder",
    "sweeps/plan/test_crossing.py::test_an_interrupted_search_goes_on_as_if_it_had_not_been",
    "sweeps/plan/test_logs.py::test_resuming_makes_the_logs_that_are_missing",
    "sweeps/report/test_browser.py::test_print_unfolds_everything_in_light_colours",
    "sweeps/report/test_odma_paper.py",
    "sweeps/plan/test_kv_read.py",
    "sweeps/run/test_dask_cluster.py::test_a_task_whose_worker_is_killed_is_done_by_another",
    "sweeps/run/test_fleet_run.py::test_two_workers_one_of_which_is_killed_come_to_what_one_does",
    "sweeps/run/test_goodput.py::test_each_point_is_offered_its_own_and_resuming_keeps_it",
    "sweeps/run/test_run.py::test_a_signal_keeps_what_was_finished_and_says_so",
    "sweeps/study/test_co_design.py::test_a_short_window_keeps_half_of_a_batch_and_an_interruption_changes_nothing",
    "sweeps/study/test_study.py::test_kill_9_loses_and_repeats_nothing",
    "sweeps/study/test_study.py::test_workers_do_not_change_trials",
})  # fmt: skip
"""Files, classes and tests that the long suite runs alone."""


def mark_long(items: list[pytest.Item]) -> None:
    """Marks as `long` what `make test` leaves to `make test-long`."""
    met: dict[str, int] = {}
    for item in items:
        name = item.nodeid.removeprefix("tests/").partition("[")[0]
        parts = name.split("::")
        above = ("::".join(parts[: end + 1]) for end in range(len(parts)))
        place = met[name] = met.get(name, -1) + 1
        if place % EVERY.get(name, 1) or any(each in LONG_ALONE for each in above):
            item.add_marker(pytest.mark.long)
