"""What a step would take on a cluster that is not here, by formula, and what limits it: `dtk.model.predict`."""

from dtk.scaling.job import ETHERNET_10, ETHERNET_100, ETHERNET_400, H100_NVLINK, Cluster, Job, Link, ethernet
from dtk.scaling.prediction import compare_published, fit, predict

__all__ = [
    "ETHERNET_10",
    "ETHERNET_100",
    "ETHERNET_400",
    "H100_NVLINK",
    "Cluster",
    "Job",
    "Link",
    "compare_published",
    "ethernet",
    "fit",
    "predict",
]
