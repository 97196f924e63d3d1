# Hosts on one machine, to be sourced: network and host name of each are its own (namespaces of Linux), joined by a bridge
# whose links have a rate. The disk and the process numbers are shared. Ranks of different hosts share no memory.
#
#   hosts_up N RATE [own]  hosts 1..N and a head without ranks, RATE as tc says it (1gbit), all of which reach each other;
#                         own: each has a core of its own; false: not allowed here
#   hosts_dtrun ARGS...   dtrun ($DTRUN) on the head, which starts one rank on each host
#   hosts_slots N         it starts N ranks on each host
#   hosts_link K up|down  the link of a host
#   hosts_ranks K         process numbers of the ranks of a host
#   hosts_down            kills what runs on them, too
hosts_id=dtp$$ hosts_n=0 hosts_dir=

hosts_on() { # NAME COMMAND...: on a host or the head
    local name=$1
    shift
    ip netns exec "$hosts_id-$name" unshare --uts sh -c 'hostname "$1"; shift; exec "$@"' sh "$name" "$@"
}

hosts_add() { # NAME ADDRESS
    local ns=$hosts_id-$1 bridge=$hosts_id-bridge
    ip netns add "$ns" && ip -n "$ns" link add eth0 type veth peer name "v$1" netns "$bridge" &&
        ip -n "$bridge" link set "v$1" master br0 up && ip -n "$ns" link set lo up &&
        ip -n "$ns" link set eth0 up && ip -n "$ns" addr add "10.78.0.$2/24" dev eth0
}

# Waits until every host gets an answer from every other one. A link passes nothing for up to a second after it came up,
# and an address that was asked for meanwhile counts as unreachable.
hosts_meet() {
    local from to tries
    for from in head $(seq -f host%g 1 "$hosts_n"); do
        for to in 254 $(seq 1 "$hosts_n"); do
            for ((tries = 0; ; tries++)); do
                # nobody listens there
                [[ $(hosts_on "$from" env LC_ALL=C timeout 1 bash -c ": </dev/tcp/10.78.0.$to/9" 2>&1) != *refused* ]] ||
                    break
                [ $tries -lt 100 ] || return 1
                sleep 0.05
            done
        done
    done
}

hosts_up() {
    hosts_n=$1
    hosts_dir=$(mktemp -d)
    local pin=
    [ "${3:-}" = own ] && pin="taskset -c \$(((\${name#host} - 1) % $(nproc --all)))"
    {
        ip netns add "$hosts_id-bridge" && ip -n "$hosts_id-bridge" link add br0 type bridge &&
            ip -n "$hosts_id-bridge" link set br0 up && hosts_add head 254 || return 1
        for k in $(seq 1 "$hosts_n"); do
            hosts_add "host$k" "$k" || return 1
            ip netns exec "$hosts_id-host$k" tc qdisc add dev eth0 root tbf rate "$2" burst 70kb latency 40ms &&
                ip netns exec "$hosts_id-bridge" tc qdisc add dev "vhost$k" root tbf rate "$2" burst 70kb latency 40ms ||
                return 1
        done
        hosts_on head true && hosts_slots 1 && hosts_meet || return 1
    } >/dev/null 2>&1 || return 1
    # what mpirun starts its daemons with: AGENT ADDRESS COMMAND...
    cat >"$hosts_dir/agent" <<AGENT
#!/bin/sh
name=host\${1##*.}
shift
exec $pin ip netns exec $hosts_id-\$name unshare --uts sh -c "hostname \$name; \$*"
AGENT
    chmod +x "$hosts_dir/agent"
}

hosts_dtrun() {
    hosts_on head env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_plm=rsh \
        OMPI_MCA_plm_rsh_agent="$hosts_dir/agent" OMPI_MCA_orte_default_hostfile="$hosts_dir/hosts" \
        OMPI_MCA_btl=tcp,self,vader OMPI_MCA_pml=ob1 OMPI_MCA_btl_tcp_if_include=10.78.0.0/24 \
        OMPI_MCA_oob_tcp_if_include=10.78.0.0/24 OMPI_MCA_orte_tmpdir_base="$hosts_dir" "${DTRUN:-dtrun}" "$@"
}

hosts_slots() {
    local k
    for k in $(seq 1 "$hosts_n"); do echo "10.78.0.$k slots=$1"; done >"$hosts_dir/hosts"
}

hosts_link() { ip -n "$hosts_id-bridge" link set "vhost$1" "$2"; }

hosts_ranks() { # the processes of the host that are dtrun
    ip netns pids "$hosts_id-host$1" | while read -r pid; do
        [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dtrun ] && echo "$pid"
    done
}

hosts_down() {
    local k pid
    for k in head $(seq -f host%g 1 "$hosts_n"); do
        for pid in $(ip netns pids "$hosts_id-$k" 2>/dev/null); do kill -9 "$pid" 2>/dev/null; done
        ip netns del "$hosts_id-$k" 2>/dev/null
    done
    ip netns del "$hosts_id-bridge" 2>/dev/null
    rm -rf "$hosts_dir"
}
