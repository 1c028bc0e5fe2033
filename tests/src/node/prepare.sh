# Makes the namespaces that this runs in fit for a node, and goes on as the command in its arguments. Nothing of it is seen
# outside. $0 is the node's address.
set -eu

# What containerd, kubelet and iptables keep by themselves, and an overlay can't lie on an overlay.
for folder in /run /var/lib /var/log; do
  mount -t tmpfs -o mode=755,size=24g node "$folder"
done

# The groups of this process are the roots here.
mount -t tmpfs -o mode=755 cgroups /sys/fs/cgroup
while IFS=: read -r _ names _; do
  [ -n "$names" ] || continue
  mkdir "/sys/fs/cgroup/${names#name=}"
  mount -t cgroup -o "$names" cgroup "/sys/fs/cgroup/${names#name=}"
done < /proc/self/cgroup

# Kubelet would set these for the whole machine, unless they are as it wants them.
for setting in vm/overcommit_memory=1 kernel/panic=10 kernel/panic_on_oops=1; do
  file="/run/$(basename "${setting%=*}")"
  echo "${setting#*=}" > "$file"
  mount --bind "$file" "/proc/sys/${setting%=*}"
done

# The node's address lies on a bridge without ports, and the way out leads nowhere.
ip link set lo up
ip link add node type bridge
ip address add "$0/24" dev node
ip link set node up
ip route add default via "${0%.*}.254"

exec "$@"
