#!/bin/sh
# Runs a grader, and with it students' code, in a box:
#
#     [SECONDS_LIMIT=1800] [GIGABYTES=4] [IMAGE=...] sh grade_boxed.sh DIR COMMAND ...
#
# The command runs in DIR, which is all that it can write to, besides a /tmp of its own. It has no network, sees no
# process but its own, and gets no password from your environment. It can still read what you can. After so many
# seconds all of it is killed; no process has more memory than that, and no file is larger.
# By bubblewrap (bwrap), with this machine's programs; else by Docker, with those of IMAGE. Exits with the command's
# code, with 124 or 137 where the time was over, with 2 where neither is installed.
set -eu
[ $# -ge 2 ] || { echo "usage: sh grade_boxed.sh DIR COMMAND ..." >&2; exit 2; }
dir=$(cd "$1" && pwd -P)
shift
seconds=${SECONDS_LIMIT:-1800}
bytes=$((${GIGABYTES:-4} * 1024 * 1024 * 1024))

if command -v bwrap > /dev/null; then
    # timeout stays outside, where nobody in the box can kill it. /run has the sockets of services, such as Docker's.
    # Memory is counted as data: TensorFlow reserves gigabytes of addresses (ulimit -v) that it never uses.
    exec env -i PATH="$PATH" LANG="${LANG:-C.UTF-8}" PYTHONPATH="${PYTHONPATH:-}" HOME=/tmp \
        timeout -k 10 "$seconds" \
        bwrap --unshare-all --die-with-parent --new-session --cap-drop ALL \
            --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp --tmpfs /run --bind "$dir" "$dir" --chdir "$dir" \
            prlimit --data="$bytes" --fsize="$bytes" --nproc=4000 --core=0 "$@"
elif command -v docker > /dev/null; then
    # timeout is the container's first process: nobody inside can kill it, and with it all others end.
    exec docker run --rm --network none --read-only --tmpfs /tmp:exec --cap-drop ALL --security-opt no-new-privileges \
        --memory "$bytes" --pids-limit 4000 --user "$(id -u):$(id -g)" --env HOME=/tmp \
        --volume "$dir:$dir" --workdir "$dir" "${IMAGE:?name an image that has dtk and the grader}" \
        timeout -k 10 "$seconds" "$@"
fi
echo "grade_boxed.sh: install bubblewrap (apt-get install bubblewrap, dnf install bubblewrap) or Docker" >&2
exit 2
