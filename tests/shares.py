# ruff: noqa: E501
"""Which share of dear families of cases `make test` runs; `make test-long` runs all.

A case is here where its neighbours, or a test on a floor below, see the same defect: policies in a
loop that is one for all, signals with one worker and with two, examples whose parts are tested.
Never here: kernel against oracle, the auditor, recorded runs of one card as a whole, statistics.
"""

from __future__ import annotations

import pytest

EVERY = {
    "answers/test_asked_again.py::test_a_what_if_says_of_refresh_what_memory_says": 2,
    "answers/test_capacity.py::test_a_capacity_does_not_hang_on_how_many_requests_are_measured": 2,
    "answers/test_capacity.py::test_above_the_capacity_what_waits_grows_and_below_it_does_not": 3,
    "answers/test_capacity.py::test_four_cards_carry_four_times_as_much": 2,
    "hwmodel/kernel/test_refresh.py::test_each_bank_has_its_refreshes": 3,
    "hwmodel/kernel/test_refresh_fits.py::test_an_endless_simulation_can_be_interrupted": 2,
    "hwmodel/kernel/test_rows.py::test_row_blocks_one_tick_early_not_on_the_tick_and_nothing_outside": 2,
    "hwmodel/measure/test_bounds.py::test_no_measured_pattern_beats_its_closed_form": 6,
    "hwmodel/measure/test_bounds.py::test_no_run_of_a_shipped_memory_beats_its_own_bound": 4,
    "hwmodel/measure/test_channels.py::test_any_split_gives_the_completions_of_one_batch_and_the_figures_of_replay": 2,
    "hwmodel/measure/test_closed_forms.py::test_all_bank_refresh_costs_a_sequential_stream_what_the_closed_form_says": 3,
    "hwmodel/measure/test_closed_forms.py::test_no_run_is_faster_than_its_own_command_counts_allow": 3,
    "hwmodel/measure/test_closed_forms.py::test_rotating_single_row_accesses_reach_the_closed_form": 3,
    "hwmodel/measure/test_closed_forms.py::test_sequential_reads_reach_99_percent_of_peak_without_refresh": 3,
    "hwmodel/measure/test_recurring.py::test_what_memory_says_of_postponed_refreshes_is_within_its_bound": 2,
    "hwmodel/measure/test_simulator_traces.py::test_every_format_gives_the_same_figures": 4,
    "hwmodel/specs/test_plausible.py::test_variants_that_ship_fit_their_device": 3,
    "hwmodel/oracle/test_audit.py::test_auditor_accepts_the_oracle_on_shipped_memories": 3,
    "policies/engines/test_speculation.py::test_drafts_make_the_same_tokens_in_fewer_steps_with": 3,
    "policies/engines/test_vllm_schedules.py::test_every_step_is_that_of_vllm": 4,
    "policies/memory/test_measured.py::test_no_agreement_is_lost": 54,
    "policies/memory/test_step_work.py::test_streams_have_the_bytes_of_the_work": 6,
    "policies/memory/test_streams.py::test_every_step_moves_what_it_must": 4,
    "policies/placements/test_placements.py::test_a_memory_holds_what_it_says_without_holes_or_overlaps": 3,
    "policies/serving/test_beams.py::test_every_token_is_made_and_every_block_returns": 5,
    "policies/serving/test_options.py::test_it_moves_its_number": 10,
    "policies/serving/test_own_together.py::test_all_are_at_work_and_nothing_is_lost": 4,
    "policies/serving/test_own_together.py::test_what_a_host_loses_while_layers_come_is_computed_again": 2,
    "policies/serving/test_pairs.py::test_a_generated_serving_loses_nothing": 3,
    "policies/serving/test_pairs.py::test_a_pair_does_what_the_page_says": 6,
    "policies/serving/test_pairs.py::test_each_feature_leaves_its_trace_alone": 4,
    "policies/serving/test_pairs.py::test_what_deployments_combine_runs": 6,
    "policies/serving/test_recorder.py::test_logs_add_up_to_a_run_that_they_do_not_change": 3,
    "policies/serving/test_closed_loop.py::test_every_policy_serves_all_and_steps_together_are_single_steps": 3,
    "policies/serving/test_fleet_sessions.py::test_each_turn_runs_once_after_the_one_before_on_any_card": 3,
    "policies/serving/test_returning_faults.py::test_pools_lose_nothing": 5,
    "policies/serving/test_serving.py::TestEveryPolicy::test_steps_advanced_together_are_the_single_steps": 3,
    "policies/serving/test_sessions.py::test_every_policy_sends_a_turn_a_pause_after_the_last_answer": 4,
    "policies/transfers/test_connectors.py::test_of_several_samples_the_prompt_is_stored": 3,
    "policies/transfers/test_connectors.py::test_pools_go_with_every_scheduler": 4,
    "policies/transfers/test_connectors.py::test_tiers_go_with_every_scheduler": 5,
    "policies/transfers/test_fabric.py::test_does_no_end_of_a_link_carry_two_at_once": 2,
    "sweeps/ask/test_low_bandwidth.py::test_the_largest_cause_is_the_one_that_the_trace_was_built_for": 3,
    "sweeps/ask/test_questions.py::test_options_go_together_or_are_refused_in_a_line_by_both": 2,
    "sweeps/ask/test_sizing.py::test_any_policy_is_sized_and_only_paging_is_asked_about_gather": 3,
    "sweeps/cli/test_new_device.py::test_a_card_described_twice_gives_one_answer": 2,
    "sweeps/cli/test_schema.py::test_each_is_a_schema": 4,
    "sweeps/report/test_vega.py::test_every_chart_is_a_picture_of_each_kind": 3,
    "sweeps/report/test_vega.py::test_every_chart_is_valid_and_compiles": 3,
    "test_testing.py::test_what_ships_keeps_its_contract": 2,
    "test_examples.py::test_an_example_prints_its_answer": 3,
}  # fmt: skip
"""Of a family's cases, in the order of collection, each n-th."""

LONG_ALONE = frozenset({
    "answers/test_asked_again.py::test_the_best_of_a_study_serves_as_much_when_it_is_served_alone",
    "answers/test_capacity.py::test_goodput_hangs_on_the_capacity_and_not_on_the_length_of_the_run",
    "answers/test_capacity.py::test_intervals_of_short_runs_hold_the_capacity_of_long_ones",
    "hwmodel/kernel/test_cache.py::test_a_command_says_in_one_line_that_kernels_are_kept_nowhere",
    "hwmodel/kernel/test_cache.py::test_without_a_home_that_can_be_written_they_are_kept_among_temporary_files",
    "hwmodel/kernel/test_shapes.py::test_the_parts_of_a_kernel_are_known_in_it_alone",
    "hwmodel/measure/test_racm.py::test_the_variants_of_a_device_are_simulated_at_the_extent_alone",
    "hwmodel/measure/test_replay.py::test_memory_does_not_grow_with_the_stream",
    "hwmodel/oracle/test_command_csv.py::test_csv_comes_back_whole",
    "policies/allocators/test_plugin.py::test_a_notebook_runs_it_beside_the_others",
    "policies/memory/test_full_memory.py::test_what_a_layer_loses_grows_with_the_root_of_its_length",
    "policies/memory/test_full_memory.py::test_tiles_dealt_in_turn_are_faster_than_slices_of_a_layer",
    "policies/transfers/test_moves.py::test_windows_move_what_they_see_and_states_whole",
    "sweeps/ask/test_published_servers.py::test_rows_that_no_card_can_do_are_left_out",
    "sweeps/ask/test_sizing.py::test_a_sweep_agrees_with_the_load_that_was_found",
    "sweeps/cli/test_controller_rule.py::test_a_rule_of_an_installed_package_is_in_the_kernels",
    "sweeps/cli/test_devices_page.py::test_quickstart_answers_for_it",
    "sweeps/cli/test_export.py::test_weights_go_round_the_channels_and_times_may_be_left_out",
    "sweeps/cli/test_plugin_option.py::test_check_and_schema_see_it",
    "sweeps/cli/test_wheel.py::test_it_runs_from_the_wheel_and_not_from_the_clone",
    "sweeps/cli/test_wheel.py::test_the_command_works_from_any_folder",
    "sweeps/plan/test_kv_read.py",
    "sweeps/plan/test_logs.py::test_resuming_makes_the_logs_that_are_missing",
    "sweeps/report/test_browser.py::test_print_unfolds_everything_in_light_colours",
    "sweeps/report/test_odma_paper.py",
    "sweeps/run/test_dask_cluster.py::test_a_policy_of_a_plug_in_serves_on_two_workers_as_it_does_here",
    "sweeps/run/test_dask_cluster.py::test_a_task_whose_worker_is_killed_is_done_by_another",
    "sweeps/run/test_fleet_run.py::test_two_workers_one_of_which_is_killed_come_to_what_one_does",
    "sweeps/run/test_run.py::test_a_signal_keeps_what_was_finished_and_says_so",
    "sweeps/study/test_co_design.py::test_a_short_window_keeps_half_of_a_batch_and_an_interruption_changes_nothing",
    "sweeps/study/test_study.py::test_a_line_a_trial_in_the_order_of_numbers",
    "sweeps/study/test_study.py::test_ctrl_c_keeps_what_was_told",
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
