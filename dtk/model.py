"""What a step would take on a cluster that is not here, by formula, and what limits it: `dtk.model.predict`."""

from dtk.scaling.fitting import fit
from dtk.scaling.job import Cluster, Job
from dtk.scaling.links import ETHERNET_10, ETHERNET_100, ETHERNET_400, H100_NVLINK, Link, ethernet
from dtk.scaling.prediction import predict
from dtk.scaling.published import compare as compare_published

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
