#!/usr/bin/env python3
"""Says what a run of ctest spent its time on: its 30 slowest entries, and the seconds of each label.

    report_tests.py FILE    FILE is what `ctest --output-junit FILE` wrote

With WEFT_GATE in the environment it fails, with exit code 1, if an entry of the labels `process` or
`hosts` was skipped: the gate's machine has the programs, namespaces and daemons that these need, so
such a test has proven nothing. Entries of `gpu` want a device, and some of `unit` another user than
root, or a device.
"""
import collections
import os
import sys
import xml.etree.ElementTree

SLOWEST = 30
NEVER_SKIPPED = {"process", "hosts"}


def labels_of(case):
    """Returns an entry's labels; ctest writes them as one property, parted by semicolons."""
    for each in case.iter("property"):
        if each.get("name") == "cmake_labels":
            return each.get("value", "").split(";")
    return ["none"]


def main(path):
    cases = list(xml.etree.ElementTree.parse(path).getroot().iter("testcase"))
    seconds = collections.Counter()
    count = collections.Counter()
    for case in cases:
        for label in labels_of(case):
            seconds[label] += float(case.get("time") or 0)
            count[label] += 1
    print(f"== the {SLOWEST} slowest of {len(cases)} entries")
    for case in sorted(cases, key=lambda each: -float(each.get("time") or 0))[:SLOWEST]:
        print(f"{float(case.get('time') or 0):8.1f} s  {case.get('name')}")
    print("== seconds of each label (entries run beside each other)")
    for label, total in seconds.most_common():
        print(f"{total:8.1f} s  {label}: {count[label]} entries")
    if "WEFT_GATE" not in os.environ:
        return 0
    skipped = [case for case in cases
               if case.get("status") in ("notrun", "disabled") and NEVER_SKIPPED & set(labels_of(case))]
    for case in skipped:
        print(f"weft: {case.get('name')} was skipped, which no test of processes or hosts may be in the "
              "gate; its output says what it lacks", file=sys.stderr)
    return 1 if skipped else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
