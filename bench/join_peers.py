#!/usr/bin/env python3
"""This program times how 1,024 ranks join, weft beside PyTorch's c10d, in turns on one machine.

- weft: join_bench with --agents 128 --ranks 8: from the recorded launch until every rank holds what
  it is to train ("join") and until all were told to begin ("join and begin"). It is durable.
- store: as many TCPStore clients as ranks, connected before: each says its address, counts itself,
  waits until all have come, and reads what the first one wrote for it. Nothing is durable.
- rendezvous: what torchrun's agents do with --rdzv_backend=c10d: 128 dynamic rendezvous handlers,
  connected before, from the first call until the last one knows its rank. Ranks of an agent would
  still have to meet through the store, as above.

The server is a process of its own, the clients are threads of `--processes` processes.
python3 bench/join_peers.py --torch PYTHON [--join-bench FILE] [--rounds N]
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys

LIMIT_S = 180


def serve():
    """Serves a store on a free port until its input ends; its first line is the port."""
    from datetime import timedelta
    from torch.distributed import TCPStore
    store = TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=LIMIT_S), False)
    print(store.port, flush=True)
    sys.stdin.read()


def join_store(store, rank, ranks):
    """A rank joins as init_process_group's does, and reads its part of what the first one wrote."""
    store.set(f"address/{rank}", f"127.0.0.1:{20000 + rank}")
    if store.add("count", 1) == ranks:
        store.set("all", "1")
    store.wait(["all"])
    if rank == 0:
        for other in range(ranks):
            store.set(f"assignment/{other}", "x" * 256)
    return store.get(f"assignment/{rank}")


def run_clients(kind, port, first, count, total):
    """Connects, says so, waits for a line, joins with all, and says how long that took."""
    import threading
    import time
    from datetime import timedelta
    from torch.distributed import TCPStore

    def connect():
        return TCPStore("127.0.0.1", port, None, False, timedelta(seconds=LIMIT_S), False)

    stores = [connect() for _ in range(count)]
    if kind == "rendezvous":
        from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import \
            C10dRendezvousBackend
        from torch.distributed.elastic.rendezvous.dynamic_rendezvous import \
            DynamicRendezvousHandler
        handlers = [DynamicRendezvousHandler.from_backend(
            "join", store, C10dRendezvousBackend(store, "join"), total, total)
            for store in stores]
    go = threading.Event()
    errors = []
    ends = [0.0] * count

    def work(i):
        go.wait(LIMIT_S)
        try:
            if kind == "store":
                join_store(stores[i], first + i, total)
            else:
                handlers[i].next_rendezvous()
            ends[i] = time.monotonic()
        except Exception as error:  # the run is then no measurement
            errors.append(repr(error))

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    sys.stdin.readline()
    begin = time.monotonic()
    go.set()
    for thread in threads:
        thread.join(LIMIT_S)
    if 0.0 in ends and not errors:
        errors.append("not all have joined")
    print(json.dumps({"begin": begin, "end": max(ends), "errors": errors[:3]}), flush=True)
    os._exit(0)  # handlers have threads that go on asking


def spawn(python, *words):
    return subprocess.Popen([python, os.path.abspath(__file__), *map(str, words)], text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL)


def time_torch(options, kind, total):
    """Returns the seconds from the first call until the last client has what it waits for."""
    server = spawn(options.torch, "--serve")
    clients = []
    try:
        port = int(server.stdout.readline())
        share = -(-total // options.processes)
        for first in range(0, total, share):
            clients.append(spawn(options.torch, "--clients", kind, port, first,
                                 min(share, total - first), total))
        if any(client.stdout.readline().strip() != "ready" for client in clients):
            raise RuntimeError(f"{kind}: a client does not connect")
        for client in clients:
            client.stdin.write("\n")
            client.stdin.flush()
        said = [json.loads(client.stdout.readline()) for client in clients]
        errors = [error for each in said for error in each["errors"]]
        if errors:
            raise RuntimeError(f"{kind}: {errors[0]}")
        return max(each["end"] for each in said) - min(each["begin"] for each in said)
    finally:
        for process in clients + [server]:
            process.kill()
            process.wait()


def time_weft(options):
    text = subprocess.run(
        [options.join_bench, "--agents", str(options.agents), "--ranks", str(options.ranks),
         "--beats", "1"], check=True, capture_output=True, text=True, timeout=LIMIT_S).stdout
    join = float(re.search(r"^join: .* in ([0-9.]+) s", text, re.M).group(1))
    begin = float(re.search(r"^begin: ([0-9.]+) s", text, re.M).group(1))
    return join, join + begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", default=sys.executable, help="a Python that has torch")
    parser.add_argument("--join-bench", default="build/release/bench/join_bench")
    parser.add_argument("--agents", type=int, default=128)
    parser.add_argument("--ranks", type=int, default=8, help="behind each")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2, help="that torch's clients live in")
    options = parser.parse_args()
    total = options.agents * options.ranks
    times = {"weft join": [], "weft join and begin": [], "c10d store": [], "c10d rendezvous": []}
    for turn in range(options.rounds):
        join, begun = time_weft(options)
        times["weft join"].append(join)
        times["weft join and begin"].append(begun)
        times["c10d store"].append(time_torch(options, "store", total))
        times["c10d rendezvous"].append(time_torch(options, "rendezvous", options.agents))
        print(f"round {turn + 1}: " +
              ", ".join(f"{name} {each[-1]:.3f} s" for name, each in times.items()), flush=True)
    own = statistics.median(times["weft join and begin"])
    for name, each in times.items():
        print(f"{name}: median {statistics.median(each):.3f} s ({min(each):.3f} to {max(each):.3f}),"
              f" {statistics.median(each) / own:.2f} of weft's join and begin")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve()
    elif sys.argv[1:2] == ["--clients"]:
        run_clients(sys.argv[2], *map(int, sys.argv[3:7]))
    else:
        main()
