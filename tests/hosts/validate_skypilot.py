# Has SkyPilot itself read the task and the volume of deploy/skypilot, and refuse broken ones. Not
# part of CI.
#   python -m venv V && V/bin/pip install skypilot
#   V/bin/python tests/hosts/validate_skypilot.py
import os
import pathlib
import sys
import tempfile

import sky
import sky.volumes.volume
import yaml


def refusal(text):
    """What SkyPilot says against a task; empty: nothing."""
    try:
        sky.Task.from_yaml_config(yaml.safe_load(text))
    except (ValueError, sky.exceptions.InvalidSkyPilotConfigError) as error:
        return str(error)
    return ""


def volume_refusal(text):
    try:
        volume = sky.volumes.volume.Volume.from_yaml_config(yaml.safe_load(text))
        volume.validate(skip_cloud_compatibility=True)
    except (ValueError, sky.exceptions.InvalidSkyPilotConfigError) as error:
        return str(error)
    return ""


def main():
    folder = pathlib.Path(__file__).resolve().parents[2] / "deploy/skypilot"
    task = (folder / "weft.yaml").read_text()
    # It wants what is to be copied to be there.
    os.chdir(tempfile.mkdtemp())
    for path in yaml.safe_load(task)["file_mounts"].values():
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(path).touch()
    found = refusal(task)
    print(f"SkyPilot {sky.__version__}: {found or 'takes it'}")
    wrong = found != ""
    # A validator that takes everything shows nothing.
    for break_it in (("num_nodes: 2", "num_nodes: two"), ("setup: |", "setups: |"),
                     ("accelerators: H100:8", "accelerator: H100:8"), ("[75]", "[1075]")):
        assert break_it[0] in task
        found = refusal(task.replace(*break_it))
        print(f"{break_it[1]}: {'refused' if found else 'TAKEN'}")
        wrong |= found == ""
    volume = (folder / "volume.yaml").read_text()
    found = volume_refusal(volume)
    print(f"volume: {found or 'taken'}")
    wrong |= found != ""
    found = volume_refusal(volume.replace("ReadWriteMany", "ReadWriteSome"))
    print(f"ReadWriteSome: {'refused' if found else 'TAKEN'}")
    wrong |= found == ""
    sys.exit(1 if wrong else 0)


main()
