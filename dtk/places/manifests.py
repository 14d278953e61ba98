"""What `dtk.export` writes beside the function: a shell script, a batch script, Kubernetes' manifests, and words."""

from __future__ import annotations

import re

from dtk.language import N_
from dtk.launch.cluster_of import PORT

__all__ = [
    "DOCKERFILE",
    "INSTALL",
    "README",
    "RECORDS",
    "SBATCH",
    "START",
    "job_name",
    "kubernetes",
]

START = """#!/bin/bash
# {workers} workers on this machine. On several machines, each starts its own, with the TF_CONFIG that is made here.
here=$(cd "$(dirname "$0")" && pwd)
workers=${{WORKERS:-{workers}}}
port=${{PORT:-23456}}
cluster=
k=0
while [ $k -lt "$workers" ]; do
    cluster="$cluster${{cluster:+, }}\\"127.0.0.1:$((port + k))\\""
    k=$((k + 1))
done
export DTK_RUN=${{DTK_RUN:-$(date +%Y%m%d-%H%M%S)}}  # its directory in runs/
# gRPC would send the workers' own traffic to a proxy.
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY
k=0
pids=
while [ $k -lt "$workers" ]; do
    task="{{\\"type\\": \\"worker\\", \\"index\\": $k}}"
    TF_CONFIG="{{\\"cluster\\": {{\\"worker\\": [$cluster]}}, \\"task\\": $task}}" {entry} &
    pids="$pids $!"
    k=$((k + 1))
done
trap 'kill $pids 2> /dev/null' INT TERM
status=0
for _ in $pids; do
    # The first that fails ends the others, which would wait for it.
    wait -n || {{ code=$?; [ $status -ne 0 ] || status=$code; kill $pids 2> /dev/null; }}
done
exit $status
"""

SCRIPT_WORDS = N_("""`./start.sh` starts {workers} workers on this machine.

On several machines, copy the directory to each and start a worker there, with the addresses of all and its own number:

    cluster='{{"worker": ["10.0.0.1:23456", "10.0.0.2:23456"]}}'
    export TF_CONFIG="{{\\"cluster\\": $cluster, \\"task\\": {{\\"type\\": \\"worker\\", \\"index\\": 0}}}}"
    {entry}
""")

SBATCH = """#!/bin/bash
#SBATCH --job-name=dtk
#SBATCH --nodes={workers}
#SBATCH --ntasks-per-node=1
#SBATCH --output=slurm-%j.log
# Yours: #SBATCH --partition=... --time=... --gres=gpu:1
set -e
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY  # gRPC would send the workers' own traffic there
srun --kill-on-bad-exit=1 --label {entry}
"""

SLURM_WORDS = N_("""From this directory, which all nodes must see, with a Python on PATH that has what is listed below:

    sbatch job.sbatch

{workers} nodes, a worker on each; `sbatch --nodes=8 job.sbatch` for 8.
""")

DOCKERFILE = """FROM python:{python}-slim
{install}
COPY . /job
WORKDIR /job
ENTRYPOINT {entry}
"""

INSTALL = """# dtk {dtk}: put its wheel beside this file (`pip wheel --no-deps`), or install it from where you have it.
COPY *.whl /wheels/
RUN pip install --no-cache-dir tensorflow=={tensorflow} /wheels/*.whl"""

RECORDS = N_("""Each worker writes into `runs/`; `dtk show runs/run*` prints a table, `dtk report runs/run*` a page.

""")

KUBERNETES_WORDS = N_("""    docker build -t {image} . && docker push {image}
    kubectl apply -f job.yaml
    kubectl logs -f -l job-name={name} --prefix --max-log-requests {workers}

{workers} pods of an Indexed Job, which a headless Service gives names: `{name}-0.{name}` and so on. Each pod has a
directory /job/runs of its own, which goes with it: for records that stay, and for checkpoints that a restart finds,
mount a volume there (`ReadWriteMany`).
""")

README = N_("""# {name}

Written by `dtk.export`. The function is {what}.

{said}
{records}What every machine needs: the same versions of Python, TensorFlow and {also}; the data, at the same place;
ports above 1023 open between all of them, both ways.
""")


def job_name(name: str) -> str:
    """A name that Kubernetes takes for a Job and for a Service.

    >>> job_name("My_train v2")
    'my-train-v2'
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-") or "dtk"


def kubernetes(name: str, workers: int, image: str, plain: bool) -> str:
    """The Service and the Indexed Job, as YAML. No operator: each pod's name has its number.

    https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode
    """
    called = job_name(name)
    command = '["python", "/job/train.py"]' if plain else '["python", "-m", "dtk", "worker", "/job"]'
    return _KUBERNETES.format(name=called, workers=workers, image=image, command=command, port=PORT)


_KUBERNETES = """apiVersion: v1
kind: Service
metadata:
  name: {name}
spec:
  clusterIP: None  # headless: a name for each pod, and no address in between
  publishNotReadyAddresses: true  # workers wait for each other before one of them is ready
  selector:
    job-name: {name}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
spec:
  completionMode: Indexed
  completions: {workers}
  parallelism: {workers}
  backoffLimit: 0  # a worker alone can't come back: its peers have lost it, and the whole Job starts anew
  template:
    spec:
      subdomain: {name}
      restartPolicy: Never
      containers:
        - name: worker
          image: {image}
          command: {command}
          env:
            - name: DTK_JOB
              value: "{name}"
            - name: DTK_SERVICE
              value: "{name}"
            - name: DTK_WORKERS
              value: "{workers}"
            - name: DTK_PORT
              value: "{port}"
          ports:
            - containerPort: {port}
          resources:
            requests:
              cpu: "2"
              memory: 4Gi
"""
