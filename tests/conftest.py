"""What several test files share."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import lanes
import pytest

import dtk

sys.path.insert(0, str(Path(__file__).parent))  # `import fabricate`: helpers that are no tests
sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))  # `import lint_notebooks`


# About half of all the time that the tests take: whole files, or single tests that train for long what others train
# for a moment. They run by `make test-thorough`, and where a file is named.
THOROUGH = {
    "test_lane_lessons.py",  # every lesson, in the lanes that compare no stored outputs
    "test_fuzz.py::test_a_run_passes_or_its_cause_is_named",  # real runs, drawn at random
    "test_gallery.py::test_a_program_gets_its_right_answer",  # ten of the programs are tested always
    "test_gallery.py::test_recording_changes_no_bit",
    "test_estimator_lanes.py",  # the published tutorial on real MNIST, on two TensorFlows
    "test_exercises.py",  # trains for the lessons' exercises what the lessons themselves train
    "test_hostile.py",  # full disks, no ports, no descriptors: real processes each, warm and cold
    "test_mistakes.py",  # 43 mistakes trained for real; test_diagnose*.py has them in made-up numbers
    "test_owning_ends.py",  # Jupyter servers and kernels, started and killed
    "test_owning_load.py",  # many runs, much output, several kernels
    "test_standstill_estimator.py",
    "test_try_it.py",  # the runs that decide between two diagnoses, made for real
    "test_cells.py::test_a_captured_strategy_is_named",
    "test_cells.py::test_autograph_helpers_classes_and_modules_come_along",
    "test_cells.py::test_no_process_survives_a_killed_jupyter_kernel",
    "test_compat.py::test_without_the_correction_a_strategy_shuffles_one_epoch_ahead",
    "test_compat.py::test_without_the_correction_fit_still_fails",
    "test_compat.py::test_without_the_correction_mirrored_replicas_still_fail",
    "test_compat.py::test_without_the_correction_the_end_of_the_data_counts_as_a_step",
    "test_ends.py::test_twenty_runs_leave_nothing_behind",
    "test_estimator.py::test_a_keras_optimizer_takes_the_sum",
    "test_estimator.py::test_a_parameter_strategy_is_filled",
    "test_estimator.py::test_an_estimator_is_exported_as_a_saved_model",
    "test_estimator.py::test_autograph_still_converts_a_model_fn",
    "test_estimator.py::test_training_goes_on_where_the_checkpoint_left_off",
    "test_estimator_evaluator.py::test_eval_distribute_evaluates_alike",
    "test_evaluator.py::test_a_long_evaluation_and_a_long_wait_are_no_stalls",
    "test_keras_callbacks.py::test_a_backup_is_read_by_all_before_it_is_deleted",
    "test_keras_callbacks.py::test_all_callbacks_at_once_and_a_restart",
    "test_keras_fit.py::test_a_cluster_computes_what_one_device_does[False-1]",
    "test_keras_fit.py::test_a_cluster_computes_what_one_device_does[True-3]",
    "test_keras_fit.py::test_a_short_last_batch",
    "test_keras_fit.py::test_batch_normalization_and_dropout",
    "test_keras_fit.py::test_keras_2",
    "test_main_job.py::test_an_epoch_is_that_of_one_device[tfds]",
    "test_notebook_mutation.py::test_each_changed_number_fails",
    "test_notebooks.py::test_nbval_compares_all_the_rest",
    "test_official_loop.py::test_the_loop_is_verified_against_its_baseline",
    "test_official_loop.py::test_with_tanh_it_is_verified_for_longer",
    "test_official_loop.py::test_without_this_change_the_run_fails_with_one_sentence",
    "test_official_loop.py::test_without_this_change_verify_says_why_in_one_sentence",
    "test_owning.py::test_a_parent_that_nobody_uses_ends_and_the_next_run_starts_another",
    "test_parts.py::test_the_parts_add_up_to_the_time_on_the_clock",
    "test_placing.py::test_another_size_of_messages",
    "test_placing.py::test_tensorflow_gets_the_size_of_messages[cold]",
    "test_placing.py::test_the_public_way_still_does_nothing",
    "test_placing.py::test_workers_keep_to_their_core_and_so_do_their_threads[cold]",
    "test_study.py::test_a_study_of_a_fit",
    "test_watch.py::test_a_chief_that_goes_on_alone_is_no_stall",
    "test_watch.py::test_a_network_that_was_dropped_is_named_and_no_peer",
    "test_watch.py::test_a_stall_inside_of_a_graph_is_the_stalled_workers",
    "test_watch.py::test_a_strategy_on_the_chief_alone",
    "test_watch.py::test_an_evaluation_by_the_chief_alone",
}


def pytest_configure(config):
    # Among the runs of nobody else: tests look for the newest run, and for what is left of it.
    place = tempfile.TemporaryDirectory(prefix="dtk-tests-", ignore_cleanup_errors=True)
    os.environ["TMPDIR"] = tempfile.tempdir = place.name
    config.add_cleanup(place.cleanup)


def pytest_collection_modifyitems(config, items):
    """What does not hold with the versions that are installed is skipped, with the reason that `lanes` has for it."""
    for item in items:
        reason = lanes.reason_to_skip(item.path.name, item.name)
        if reason:
            item.add_marker(pytest.mark.skip(reason=f"lane {lanes.LANE}: {reason}"))
        named = any(item.path.name in argument for argument in config.args)
        name = f"{item.path.name}::{item.name}"
        long = not THOROUGH.isdisjoint((item.path.name, name, name.partition("[")[0]))
        if long and not named and not os.environ.get("DTK_THOROUGH"):
            item.add_marker(pytest.mark.skip(reason="make test-thorough runs it"))


@pytest.fixture(params=["warm", "cold"])
def start(request):
    if request.param == "warm" and not dtk.environment.can_fork():
        pytest.skip("workers can't be forked here")
    return request.param
