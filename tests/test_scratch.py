"""Where dtk writes while it runs is this user's alone, and dtk removes there only what it made itself."""

from __future__ import annotations

import os

import pytest

from dtk.environment import scratch
from dtk.errors import DtkError
from dtk.launch import folders


@pytest.fixture
def planned(monkeypatch, tmp_path):
    """The path that dtk will take; nothing is there yet."""
    path = tmp_path / "dtk-me"
    monkeypatch.setenv("DTK_SCRATCH", str(path))
    return path


def filled(folder):
    """Somebody's folder with as many entries as dtk would keep, and more."""
    for k in range(folders.KEPT_RUNS + 5):
        (folder / "runs" / f"{k:08d}").mkdir(parents=True)
    return folder / "runs"


def test_it_is_made_for_this_user_alone(planned):
    assert scratch("runs") == planned / "runs"
    assert [path.stat().st_mode & 0o777 for path in (planned, planned / "runs")] == [0o700, 0o700]


def test_a_planted_link_deletes_nothing(planned, tmp_path):
    runs = filled(tmp_path / "tensorboard")
    planned.symlink_to(tmp_path / "tensorboard")
    with pytest.raises(DtkError, match="dtk-me is a symbolic link; remove it, or set TMPDIR"):
        folders.fresh(1, False)
    assert len(list(runs.iterdir())) == folders.KEPT_RUNS + 5


@pytest.mark.parametrize("name", ["runs", "away"])
def test_nor_one_inside(planned, tmp_path, name):
    (tmp_path / "theirs").mkdir()
    planned.mkdir(mode=0o700)
    (planned / name).symlink_to(tmp_path / "theirs")
    with pytest.raises(DtkError, match=f"dtk-me/{name} is a symbolic link"):
        {"runs": lambda: folders.fresh(1, False), "away": folders.own_folder}[name]()


def test_what_dtk_did_not_make_stays(planned, tmp_path):
    runs = filled(planned)
    planned.chmod(0o700)
    runs.chmod(0o700)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "kernel").write_text("1 0")  # looks like a run of a kernel that is gone
    (runs / "00000000-link").symlink_to(tmp_path / "theirs")
    made = folders.fresh(1, False)
    there = {path.name for path in runs.iterdir()}
    assert len(there) == folders.KEPT_RUNS + 7
    assert made.path.name in there
    assert (tmp_path / "theirs" / "kernel").exists()


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o702])
def test_one_that_others_may_write_into_is_refused(planned, mode):
    planned.mkdir()
    planned.chmod(mode)
    with pytest.raises(DtkError, match="dtk-me is open to others' writing"):
        scratch()


def test_one_that_others_may_read_is_closed(planned):
    planned.mkdir(mode=0o755)
    scratch()
    assert planned.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives a directory away")
def test_another_users_is_refused(planned):
    planned.mkdir(mode=0o777)
    os.chown(planned, 65534, 65534)
    with pytest.raises(DtkError, match="is another user's"):
        scratch()
