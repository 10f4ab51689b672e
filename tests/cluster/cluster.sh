#!/bin/bash
# A cluster on one machine: runs COMMAND by mpirun on nodes that are network namespaces, each with its own host name (so that
# MPI's shared-memory split takes it for a node) and one link to a common bridge, shaped to a rate in both directions.
#
#     cluster.sh [--rate RATE] [--by slot|node] NODESxRANKS COMMAND...
#
# RATE: as tc writes it (1gbit, 100mbit; default none: not shaped). RANKS is per node. --by: consecutive ranks fill a node
# (slot, the default) or take turns (node). The exit code is mpirun's; 77 where namespaces or tc are not allowed, with the
# reason on standard error; 2 for wrong usage. Everything is removed at the end, also after a failure or a signal; what a
# killed script left behind goes when the next one starts.
set -u

# Open MPI's remote shell: `cluster.sh --agent [OPTION...] NODE COMMAND...` runs COMMAND on NODE.
if [ "${1:-}" = --agent ]; then
    shift
    while [[ "$1" == -* ]]; do shift; done
    node=$1
    shift
    exec ip netns exec "$TRIREME_CLUSTER-$node" unshare --uts -- bash -c "hostname $node && exec $*"
fi

usage() {
    echo "usage: cluster.sh [--rate RATE] [--by slot|node] NODESxRANKS COMMAND..." >&2
    exit 2
}

rate=none by=slot
while [ $# -gt 0 ]; do
    case "$1" in
    --rate) rate=${2:?} && shift 2 ;;
    --by) by=${2:?} && shift 2 ;;
    *) break ;;
    esac
done
[[ "${1:-}" =~ ^([1-9][0-9]?)x([1-9][0-9]?)$ ]] && [ $# -ge 2 ] || usage
nodes=${BASH_REMATCH[1]} ranks=${BASH_REMATCH[2]}
shift
export TRIREME_CLUSTER=tri-$$
switch=$TRIREME_CLUSTER-switch

skip() {
    echo "cluster.sh: no cluster here: $1" >&2
    exit 77
}

# remove_namespaces PREFIX: ends what runs in the namespaces PREFIX-* and removes them
remove_namespaces() {
    local name
    for name in $(ip netns list | awk '{print $1}' | grep "^$1-"); do
        ip netns pids "$name" 2>/dev/null | xargs -r kill -9 2>/dev/null
        ip netns del "$name" 2>/dev/null
    done
}

# Leftovers of scripts that are no more.
remove_stale() {
    local owner
    for owner in $(ip netns list | sed -n 's/^tri-\([0-9]*\)-.*/\1/p' | sort -u); do
        [ -d "/proc/$owner" ] || remove_namespaces "tri-$owner"
    done
}

# The burst holds the largest packet that the kernel hands down at once (64 KiB); 20 ms of queue, as a switch has.
shape() {
    [ "$rate" = none ] || tc -n "$1" qdisc add dev "$2" root tbf rate "$rate" burst 128kb latency 20ms
}

add_node() {
    local ns=$TRIREME_CLUSTER-node$1
    ip netns add "$ns" && ip -n "$ns" link set lo up &&
        ip link add eth0 netns "$ns" type veth peer name "port$1" netns "$switch" &&
        ip -n "$ns" addr add "10.77.0.$(($1 + 1))/24" dev eth0 && ip -n "$ns" link set eth0 up &&
        ip -n "$switch" link set "port$1" master bridge0 && ip -n "$switch" link set "port$1" up &&
        shape "$ns" eth0 && shape "$switch" "port$1"
}

add_all() {
    local i
    ip netns add "$switch" && ip -n "$switch" link add bridge0 type bridge && ip -n "$switch" link set bridge0 up || return
    for ((i = 0; i < nodes; i++)); do add_node "$i" || return; done
    unshare --uts true
}

for tool in ip tc unshare mpirun; do
    command -v "$tool" >/dev/null || skip "'$tool' is missing"
done
[ "$(id -u)" = 0 ] || skip 'only root may make network namespaces'
remove_stale
trap 'remove_namespaces "$TRIREME_CLUSTER"' EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
why=$(add_all 2>&1) || skip "${why:-namespaces are not allowed}"

hosts=
for ((i = 0; i < nodes; i++)); do hosts+=${hosts:+,}node$i:$ranks; done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# In the background, because bash handles a signal only between commands.
"$0" --agent node0 mpirun --leave-session-attached --mca plm rsh --mca plm_rsh_agent "'$(realpath "$0") --agent'" --mca plm_rsh_no_tree_spawn 1 \
    --mca pml ob1 --mca btl self,vader,tcp --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 \
    --mca btl_vader_single_copy_mechanism none --mca rmaps_base_oversubscribe 1 --mca mpi_yield_when_idle 1 \
    --bind-to none --map-by "$by" --host "$hosts" -n $((nodes * ranks)) "${@@Q}" <&0 &
wait $!
