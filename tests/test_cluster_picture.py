"""TF_CONFIG as a picture: a box for each process, the evaluator's last."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest

from dtk.launch.place import tf_configs
from dtk.view.cluster_picture import ClusterPicture
from dtk.view.palette import EVALUATOR_COLOR, worker_color


def boxes(picture):
    """Of each box: its heading, what it says of the cluster, the listing, the task, and the colour of the frame."""
    page = picture._repr_html_().replace("<br>", "<br/>")
    return [
        (*(box.find(tag).text for tag in ("b", "small", "pre", "code")), box.get("style"))
        for box in ET.fromstring(page).findall("div")
    ]


def test_the_same_cluster_stands_in_every_box():
    found = boxes(ClusterPicture(tf_configs([4001, 4002, 4003])))
    assert [heading for heading, *_ in found] == ["worker 0 (chief)", "worker 1", "worker 2"]
    assert {words for _, words, *_ in found} == {"cluster: the same in every box"}
    assert {listing for _, _, listing, *_ in found} == {"worker:\n  127.0.0.1:4001\n  127.0.0.1:4002\n  127.0.0.1:4003"}
    assert [task for *_, task, _ in found] == ["task: worker 0", "task: worker 1", "task: worker 2"]
    assert all(worker_color(k) in style for k, (*_, style) in enumerate(found))


@pytest.mark.parametrize("count", [1, 5])
def test_the_evaluator_knows_the_workers_who_do_not_know_it(count):
    *configs, own = tf_configs([*(4001 + k for k in range(count)), 4100], evaluator=True)
    picture = ClusterPicture(configs, own)
    assert len(picture) == count, "a list of the workers' alone"
    *workers, last = boxes(picture)
    assert {words for _, words, *_ in workers} == {"cluster: the same for all workers"}
    assert not any("4100" in listing for _, _, listing, *_ in workers)
    assert last[:2] == ("evaluator 0", "cluster: theirs, and itself")
    assert "127.0.0.1:4100" in last[2]
    assert "127.0.0.1:4001" in last[2]
    assert EVALUATOR_COLOR in last[4]


def test_a_cluster_picture_is_a_list():
    configs = tf_configs([4001, 4002])
    picture = ClusterPicture(configs)
    assert picture == configs
    assert repr(picture) == repr(configs)
    assert json.loads(json.dumps(picture)) == configs
    assert ClusterPicture([])._repr_html_() is None
