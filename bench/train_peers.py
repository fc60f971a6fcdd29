#!/usr/bin/env python3
"""Training steps of weft beside PyTorch's, in turns: GPT-2 124M, 4 sequences of 256 tokens, one process.

  python3 bench/train_peers.py --torch /usr/bin/python3 --torch NEWEST/bin/python [--compile NEWEST/bin/python]

Each Python that --torch names is measured eager, each that --compile names with torch.compile.
All programs of a precision start and warm up one after the other; then, in every round, each runs
its steps while the others wait at their standard input. Prints the median step of each over all
rounds, tokens/s, and how many times faster weft is. Needs 12 GB of memory and two idle cores: where
others wait for them, a parallel step takes several times as long. On cores of an AMD EPYC (Zen 4) a
round of the defaults takes a minute; torch.compile takes another or more before it is warm.
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENS = 4 * 256


class Peer:
    """A program that prints "ready NAME" and answers each line N with the seconds of N steps."""

    def __init__(self, command, suffix=""):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        start = time.monotonic()
        words = self.process.stdout.readline().split()
        if words[:1] != ["ready"]:
            raise SystemExit(f"train_peers: {' '.join(command)}: not ready, exit code "
                             f"{self.process.wait()}")
        self.name = " ".join(words[1:]) + suffix
        self.steps = []
        print(f"  {self.name}: warm after {time.monotonic() - start:.0f} s", flush=True)

    def run(self, steps):
        print(steps, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline().split()
        if len(answer) != steps:
            raise SystemExit(f"train_peers: {self.name} ended early")
        self.steps += [float(word) for word in answer]

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def start_peers(options, dtype):
    common = ["--dtype", dtype, "--threads", str(options.threads)]
    if options.toy:
        common += ["--blocks", "2", "--width", "64", "--vocabulary", "512"]
    torch = os.path.join(HERE, "torch_gpt2.py")
    peers = [Peer([options.weft, "--serve"] + common)]
    for python in options.torch:
        peers.append(Peer([python, torch] + common, " eager"))
    for python in options.compile:
        peers.append(Peer([python, torch, "--compile"] + common, " compile"))
    return peers


def compare(options, dtype):
    print(f"{dtype}:", flush=True)
    peers = start_peers(options, dtype)
    for _ in range(options.rounds):
        for peer in peers:
            peer.run(options.steps)
    for peer in peers:
        peer.end()
    ours = statistics.median(peers[0].steps)
    for peer in peers:
        step = statistics.median(peer.steps)
        print(f"| {dtype} | {peer.name} | {step:.3f} s ({min(peer.steps):.3f} to {max(peer.steps):.3f})"
              f" | {TOKENS / step:.0f} | {step / ours:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", action="append", default=[], metavar="PYTHON",
                        help="a Python that imports torch; may be given more than once")
    parser.add_argument("--compile", action="append", default=[], metavar="PYTHON",
                        help="the same, with torch.compile (2.x)")
    parser.add_argument("--dtype", action="append", choices=("fp32", "bf16"), help="default: both")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2, help="of each program in a round")
    parser.add_argument("--toy", action="store_true",
                        help="a model of no size, to see in a minute that all programs run")
    parser.add_argument("--weft", metavar="PROGRAM", help="another build's train_bench",
                        default=os.path.join(HERE, "../build/release/bin/train_bench"))
    options = parser.parse_args()
    if options.threads > len(os.sched_getaffinity(0)):
        sys.exit(f"train_peers: --threads {options.threads}: only "
                 f"{len(os.sched_getaffinity(0))} processors here")
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"train_peers: the load is {load:.1f}: these figures will mean little",
              file=sys.stderr)
    rows = options.rounds * options.steps
    print(f"{options.threads} threads, medians of {rows} steps in {options.rounds} rounds")
    for dtype in options.dtype or ("fp32", "bf16"):
        compare(options, dtype)


main()
