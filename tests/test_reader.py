"""The one reader of a run's growing files: each line once, in its order, for all that listen."""

from __future__ import annotations

from pathlib import Path

from live_folder import announce, step, tell

from dtk.records import Record, events
from dtk.watch.reader import Reader


class Listener:
    def __init__(self):
        self.heard = []

    def take(self, member, news):
        self.heard.append((member, news))

    take_event = take


def test_each_line_is_handed_on_once_to_all(folder):
    reader, watching, following = Reader(folder), Listener(), Listener()
    reader.watching = watching
    reader.following = following
    announce(folder, 2, 1)
    step(folder, 1)
    for _ in range(3):
        reader.look()
    training = [(k, events.Training(0.05, steps=2, epochs=1)) for k in (0, 1)]
    assert watching.heard == training
    records = [(k, Record(k, k, 1, 1, 0.5, 64, 0.1, 0.19)) for k in (0, 1)]
    assert [(k, news[:8] if isinstance(news, Record) else news) for k, news in following.heard] == [
        training[0],
        (0, records[0][1][:8]),
        training[1],
        (1, records[1][1][:8]),
    ]
    step(folder, 2, workers=[1])
    reader.look()
    assert [(k, news.step) for k, news in following.heard[4:]] == [(1, 2)]
    assert [member.step for member in reader.members] == [1, 2]


def test_a_watch_has_them_as_they_were_written_and_a_view_by_their_times(folder):
    """The time of a failure is taken before it is written, and another thread may write between."""
    reader, watching, following = Reader(folder), Listener(), Listener()
    reader.watching = watching
    reader.following = following
    later, sooner = events.Running(2.0), events.Failed(1.0)
    tell(folder.worker(0), later, sooner)
    reader.look()
    assert [news for _, news in watching.heard] == [later, sooner]
    assert [news for _, news in following.heard] == [sooner, later]


def test_a_look_that_finds_nothing_new_opens_no_file(folder, monkeypatch):
    reader = Reader(folder)
    announce(folder, 2, 1)
    step(folder, 1)
    reader.look()
    before = [member.sizes for member in reader.members]
    monkeypatch.setattr(Path, "open", None)
    reader.look()
    assert [member.sizes for member in reader.members] == before
    assert before[1][0] == (folder.worker(1).path / "records.jsonl").stat().st_size


def test_a_long_event_is_read_whole(folder):
    reader, following = Reader(folder), Listener()
    reader.following = following
    long = events.Evaluation(1.0, started=0.5, step=1, metrics={"confusion": [0.0] * 5000})
    tell(folder.worker(0), long)
    reader.look()
    assert following.heard == [(0, long)]


def test_an_unfinished_line_waits(folder):
    reader, watching = Reader(folder), Listener()
    reader.watching = watching
    line = events.write(events.Finished(1.0))
    file = folder.worker(1).path / "events.jsonl"
    file.write_text(line[:10])
    reader.look()
    assert watching.heard == []
    file.write_text(line)
    reader.look()
    assert watching.heard == [(1, events.Finished(1.0))]


def test_a_cluster_that_starts_again_is_read_anew(folder):
    reader, watching, second = Reader(folder), Listener(), Listener()
    reader.watching = watching
    step(folder, 7)
    tell(folder.worker(0), events.Starting(0.1), events.Running(0.2), events.Failed(0.3))
    reader.look()
    for worker in folder.each:  # what dtk.launch.launch does when a port was taken
        worker.path.rename(worker.path.with_name(f"old-{worker.worker}"))
    reader.begin(second)
    tell(folder.worker(0), events.Starting(1.1))
    reader.look()
    assert second.heard == [(0, events.Starting(1.1))]
    assert len(watching.heard) == 3
    assert reader.members[0].step == 0
