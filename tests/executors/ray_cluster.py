"""A Ray cluster of several nodes on this machine, in a process of its own: Ray warns, and leaves threads.

Prints its address and the process of each node's raylet as JSON.  A line with such a process kills that node; the end
of standard input ends the cluster.
"""

import json
import os
import sys

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_worker_niceness", "0")
SMALL = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_log_monitor": False}
TRIES = 4
"""Ray gives a node half a minute to start, which a machine that does other work may miss."""


def started(nodes: int):
    """The cluster, its first node the head."""
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    try:
        cluster.add_node(include_dashboard=False, **SMALL)
        for _ in range(nodes - 1):
            cluster.add_node(**SMALL)
    except Exception:
        cluster.shutdown()
        raise
    return cluster


def main(nodes: int) -> None:
    for left in reversed(range(TRIES)):
        try:
            cluster = started(nodes)
            break
        except Exception:
            if not left:
                raise
    try:
        several = [cluster.head_node, *cluster.worker_nodes]
        raylets = {node.all_processes["raylet"][0].process.pid: node for node in several}
        print(json.dumps({"address": cluster.address, "raylets": list(raylets)}), flush=True)
        for line in sys.stdin:
            cluster.remove_node(raylets[int(line)], allow_graceful=False)
            print(json.dumps("killed"), flush=True)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]))
