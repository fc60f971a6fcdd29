# Has Kubernetes' own schemas look at the golden manifests: every object by kubernetes-validate, which
# refuses unknown fields too, and JobSets by the models of kubeflow-trainer-api. Not part of CI.
#   python -m venv V && V/bin/pip install kubernetes-validate kubeflow-trainer-api
#   V/bin/python tests/launcher/kubernetes/validate.py
import pathlib
import sys

import kubernetes_validate
import yaml
from kubeflow_trainer_api import models


def unknown_fields(given, kept, path=""):
    """Paths in `given` that a model has not kept: names it does not know, and values it changes."""
    if isinstance(given, dict):
        if not isinstance(kept, dict):
            return [path]
        return [each for key, value in given.items()
                for each in unknown_fields(value, kept.get(key), f"{path}.{key}")]
    if isinstance(given, list):
        if not isinstance(kept, list) or len(kept) != len(given):
            return [path]
        return [each for i, value in enumerate(given)
                for each in unknown_fields(value, kept[i], f"{path}[{i}]")]
    return [] if given == kept else [path]


def faults(thing):
    """What is wrong with one object; empty: nothing."""
    kind = thing["kind"]
    if kind == "JobSet":
        kept = models.JobsetV1alpha2JobSet.from_dict(thing).to_dict()
        # Its jobs are ordinary ones.
        found = unknown_fields(thing, kept)
        for job in thing["spec"]["replicatedJobs"]:
            found += faults({"apiVersion": "batch/v1", "kind": "Job", **job["template"]})
        return found
    try:
        kubernetes_validate.validate(thing, "1.33", strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{error.path}: {error.message}"]
    return []


def check(text, name):
    wrong = 0
    for thing in yaml.safe_load_all(text):
        found = faults(thing)
        wrong += len(found)
        print(f"{name}: {thing['kind']} {thing['metadata']['name']}: {found or 'valid'}")
    return wrong


def main():
    golden = pathlib.Path(__file__).resolve().parents[2] / "golden"
    files = sorted(golden.glob("kubernetes_*.yaml"))
    wrong = sum(check(each.read_text(), each.name) for each in files)
    # A validator that takes everything shows nothing.
    job = (golden / "kubernetes_three_pods.yaml").read_text()
    for break_it in (("completions: 3", "completions: many"), ("backoffLimit", "backofLimit"),
                     ("clusterIP: None", "clusterIP: [None]")):
        assert break_it[0] in job
        wrong += check(job.replace(*break_it), f"broken by {break_it[1]}") == 0
    jobset = (golden / "kubernetes_jobset.yaml").read_text()
    wrong += check(jobset.replace("replicas: 1", "replicaz: 1"), "broken by replicaz") == 0
    sys.exit(1 if wrong or not files else 0)


main()
