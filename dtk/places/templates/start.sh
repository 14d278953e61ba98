#!/bin/bash
# @workers@ workers on this machine. On several machines, each starts its own, with the TF_CONFIG that is made here.
here=$(cd "$(dirname "$0")" && pwd)
workers=${WORKERS:-@workers@}
port=${PORT:-23456}
cluster=
k=0
while [ $k -lt "$workers" ]; do
    cluster="$cluster${cluster:+, }\"127.0.0.1:$((port + k))\""
    k=$((k + 1))
done
export DTK_RUN=${DTK_RUN:-$(date +%Y%m%d-%H%M%S)}  # its directory in runs/
# gRPC would send the workers' own traffic to a proxy.
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY
k=0
pids=
while [ $k -lt "$workers" ]; do
    task="{\"type\": \"worker\", \"index\": $k}"
    TF_CONFIG="{\"cluster\": {\"worker\": [$cluster]}, \"task\": $task}" python -m dtk worker "$here" &
    pids="$pids $!"
    k=$((k + 1))
done
trap 'kill $pids 2> /dev/null' INT TERM
status=0
for _ in $pids; do
    # The first that fails ends the others, which would wait for it.
    wait -n || { code=$?; [ $status -ne 0 ] || status=$code; kill $pids 2> /dev/null; }
done
exit $status
