"""Which set of versions the tests run with, and what does not hold with it: what a lane leaves out, and why.

The main lane skips nothing. A test whose numbers or names differ asks for KERAS_3 instead of being skipped.

`python tests/lanes.py` prints the lane with its versions, `--name` its name with Python's version.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("tensorflow", "keras", "tf-keras", "numpy", "protobuf", "ipywidgets")  # that tell the lanes from each other
# By the minor versions of TensorFlow and Keras. Others are newer than what the main lane has.
_LANES = {("2.15", "2.15"): "tf215", ("2.20", "3.12"): "lowest", ("2.20", "3.13"): "colab", ("2.21", "3.15"): "main"}


def _minor(name: str) -> str:
    return ".".join(version(name).split(".")[:2])


LANE = _LANES.get((_minor("tensorflow"), _minor("keras")), "canary")
KERAS_3 = int(version("keras").split(".")[0]) >= 3

_TRAINER = "Keras 2's fit has none of the faults of Keras 3's trainer"
_SCALAR = "a loss of one number that compile is given, Keras 2 divides by the replicas itself"
_ONE = "TensorFlow 2.15 has one Keras: keras=2 changes nothing, keras=3 is refused"
_REDUCTION = "Keras 2 refuses a loss object's default reduction in a loop under a strategy, and says so itself"

_RESET = "reset_states is Keras 2's own name, so that this line of the tutorial may stay"
_WRITTEN_FOR_3 = "the program is written for Keras 3"
_AVERAGES = "Keras 2 averages the replicas' moving statistics, so that the loss is what differs"
_ANSWER = "test_a_program_gets_its_right_answer"
_GALLERY = (_ANSWER, "test_recording_changes_no_bit")
_KERAS_3_ALONE = ("custom_train_step", "endpoint_layer", "keras_loop_from_scratch", "skip_grams")

_WHOLE = "Keras up to 3.13 adds an activity penalty up over the batch, where 3.15 takes its mean"
_ONE_HOT = "Keras up to 3.13 builds what follows a one-hot Discretization for one column"

_TABLE = "lesson 03's table is of TensorFlow 2.21 with Keras 3"
_OLD_NAMES = ("test_old_names.py", "test_each_old_name_does_what_the_table_says")

_KERAS_3_OLDER = {
    _OLD_NAMES: _TABLE,
    ("test_gallery.py", f"{_ANSWER}[sparse_autoencoder]"): _WHOLE,
    **{("test_gallery.py", f"{test}[strings_in_the_model]"): _ONE_HOT for test in _GALLERY},
}

_NO_TFDS = "Colab's tensorflow-metadata asks for a newer protobuf than Colab's: tensorflow-datasets does not load"
_WITH_TFDS = (
    "test_prepared_mnist",
    "test_damaged_caches_are_named_with_the_remedy",
    "test_machines_that_share_storage_decide_each_for_itself",
    "test_two_workers_read_the_same",
)
_WITH_DOWNLOADS = (
    "test_a_download_gets_the_proxies_back_and_only_for_itself",
    "test_the_addresses_are_those_of_tensorflow_datasets",
    "test_a_cluster_agrees_on_its_data",
)

# By lane: (file, test without its parameters or with them): reason.
SKIPPED: dict[str, dict[tuple[str, str], str]] = {
    "main": {},
    "canary": {},  # it is to say what would break
    "colab": {
        **_KERAS_3_OLDER,
        **{("test_datasets.py", test): _NO_TFDS for test in _WITH_TFDS},
        **{("test_downloads.py", test): _NO_TFDS for test in _WITH_DOWNLOADS},
        ("test_hostile.py", "test_a_home_that_takes_no_files"): _NO_TFDS,
    },
    "lowest": _KERAS_3_OLDER,
    "tf215": {
        _OLD_NAMES: _TABLE,
        ("test_compat.py", "test_without_the_correction_fit_still_fails"): _TRAINER,
        ("test_compat.py", "test_without_the_correction_an_optimizer_fails_that_two_replicas_build"): _TRAINER,
        ("test_compat.py", "test_without_the_corrections_an_empty_batch_has_no_loss"): _TRAINER,
        ("test_compat.py", "test_without_the_correction_fit_reads_or_adds_up_something_else"): _TRAINER,
        ("test_compat.py", "test_without_the_correction_the_end_of_the_data_counts_as_a_step"): _TRAINER,
        ("test_correct_keras.py", "test_without_the_call_both_fail_with_the_known_error"): _TRAINER,
        **{("test_gallery.py", f"{test}[{name}]"): _WRITTEN_FOR_3 for test in _GALLERY for name in _KERAS_3_ALONE},
        ("test_gallery.py", f"{_ANSWER}[quickstart_batch_norm]"): _AVERAGES,
        ("test_keras_callbacks.py", "test_all_callbacks_at_once_and_a_restart[2]"): _ONE,
        ("test_compat.py", "test_without_the_correction_the_first_replica_decides_about_the_loss_scale"): _TRAINER,
        ("test_compat.py", "test_without_the_correction_one_of_two_workers_waits_for_ever"): _TRAINER,
        ("test_mistakes.py", "test_the_mistake_is_recognized[sum over batch size-loop]"): _REDUCTION,
        ("test_readme.py", "test_the_mistake_is_named_in_the_sentence_under_it"): _SCALAR,
        ("test_replicas.py", "test_a_mistake_is_off_by_all_replicas_and_not_by_the_workers"): _SCALAR,
        ("test_restarts.py", "test_fit_goes_on_from_its_backup_to_the_same_weights[3]"): _ONE,
        ("test_official_loop.py", "test_without_this_change_the_run_fails_with_one_sentence[reset]"): _RESET,
        ("test_programs.py", "test_a_fit_whose_batch_grows_with_the_replicas_passes"): _WRITTEN_FOR_3,
        ("test_states.py", "test_an_evaluation_may_be_one_call_here_and_several_there"): _WRITTEN_FOR_3,
        ("test_states.py", "test_what_followers_tell_of_a_mistake[not summed-not summed]"): _WRITTEN_FOR_3,
        ("test_updates.py", "test_a_fit_without_a_recorder_and_states_is_named"): "Keras 2 has other names",
        ("test_updates.py", "test_steps_before_the_first_that_is_recorded_are_followed"): _WRITTEN_FOR_3,
    },
}

# By lane: (lesson, a line of the cell that fails there): reason.
LESSONS: dict[str, dict[tuple[str, str], str]] = {
    "main": {},
    "canary": {},
    "colab": {},
    "lowest": {},
    "tf215": {
        ("appendix_keras", "dtk.baseline(ask_the_server"): "Keras 2 has no TFSMLayer",
        ("05_custom_loop", "dtk.diagnose(broken, one_device)"): _REDUCTION,
    },
}


def lines_that_fail(lesson: str) -> list[str]:
    """A line of each cell of this lesson that raises on this lane and is not meant to."""
    return [line for name, line in LESSONS[LANE] if name == lesson]


def reason_to_skip(file: str, test: str) -> str | None:
    """Why this test (with its parameters in brackets) does not hold on this lane; None where it does."""
    reasons = SKIPPED[LANE]
    return reasons.get((file, test)) or reasons.get((file, test.partition("[")[0]))


def _versions() -> str:
    """ "colab: Python 3.13.0, tensorflow 2.20.0, ..."; what is not installed is left out."""
    found = [f"Python {sys.version.split()[0]}"]
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            pass  # tf-keras, which not every set has
    return f"{LANE}: {', '.join(found)}"


if __name__ == "__main__":
    print(f"{LANE}-python{sys.version_info[0]}.{sys.version_info[1]}" if sys.argv[1:] == ["--name"] else _versions())
