#!/usr/bin/python3
"""This program submits a job to weftd, lists all jobs, and watches its own until it is over.

It needs grpcio and what protoc makes of one file, proto/weft/v1/control.proto; docs/service.md has
the commands. Exit code: 0 the job is COMPLETED, 1 it ended otherwise, 2 weftd refused the call.

    control_client.py unix:/run/weft/weftd.sock job.json /shared/runs/first
    control_client.py --tls ann.pem weft.example.org:7070 job.json /shared/runs/first

Off weftd's host only TLS is spoken: ann.pem is what `weftd issue submitter` has made for ann.

job.json has the keys of docs/job_yaml.md, with absolute paths, and the cluster's profile spelled
out as in docs/examples/job.json. Keys that are not there have their defaults.
"""

import argparse
import json
import secrets
import sys
import time

import grpc
from weft.v1 import control_pb2, control_pb2_grpc

CALL_SECONDS = 10
TRIES = 20


def call(method, request):
    """Returns the answer. A retry has the same request id, so that a wish counts once."""
    for left in reversed(range(TRIES)):
        try:
            return method(request, timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            again = error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
            if not again or left == 0:
                raise
        time.sleep(0.5)


def submit(control, job, run_folder, name):
    """Queues the job, and returns its id."""
    request = control_pb2.SubmitRequest(
        request_id=secrets.token_hex(16),  # fresh for each wish
        submission=control_pb2.Submission(
            job=json.dumps(job),
            run_folder=run_folder,
            run=control_pb2.Submission.Run(id=secrets.token_hex(8)),
        ),
        name=name,
    )
    return call(control.Submit, request).job_id


def jobs(control):
    """Yields all jobs, newest first, page by page."""
    request = control_pb2.ListRequest(page_size=100)
    while True:
        page = call(control.List, request)
        yield from page.jobs
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


def events(control, job_id):
    """Yields what happens to the job until it is over, without a gap, over restarts of weftd too."""
    seen = 0
    while True:
        request = control_pb2.WatchRequest(job_id=job_id, after_revision=seen)
        try:
            for message in control.Watch(request):
                yield from message.events
                seen = message.revision  # to resume from: nothing up to here is missing
            return  # its last event was told
        except grpc.RpcError as error:
            # RESOURCE_EXHAUSTED: this program has read too slowly.
            if error.code() not in (
                grpc.StatusCode.UNAVAILABLE,
                grpc.StatusCode.RESOURCE_EXHAUSTED,
            ):
                raise
        time.sleep(0.5)


def text_of(event):
    """Returns one line for people; empty for events that this version does not know."""
    kind = event.WhichOneof("event")
    if kind == "phase":
        return f"{event.phase.phase}  {event.phase.reason}".rstrip()
    if kind == "step":
        return f"step {event.step.step}  loss {event.step.loss:.4f}"
    if kind == "committed":
        return f"saved {event.committed.folder}, {event.committed.bytes} bytes"
    if kind == "lost":
        return f"rank {event.lost.rank} on {event.lost.host}: {event.lost.reason}"
    if kind == "not_saved":
        return f"step {event.not_saved.step} is not saved: {event.not_saved.reason}"
    if kind == "rank_slow" and event.rank_slow.rank >= 0:
        return f"rank {event.rank_slow.rank} on {event.rank_slow.host} is slow"
    return ""


def open_channel(address, bundle):
    """Opens a channel to a unix socket, or over TLS with a bundle of `weftd issue`: one file of PEM
    blocks, the key, the certificate and the authority that has signed both sides'."""
    if bundle is None:
        return grpc.insecure_channel(address)
    with open(bundle, "rb") as file:
        ending = b" KEY-----\n"
        key, _, certificates = file.read().rpartition(ending)
    certificate, _, authority = certificates.partition(b"-----END CERTIFICATE-----\n")
    credentials = grpc.ssl_channel_credentials(
        root_certificates=authority,
        private_key=key + ending,
        certificate_chain=certificate + b"-----END CERTIFICATE-----\n",
    )
    # Every server of weft's authority answers to this name, whatever address it is dialed by.
    return grpc.secure_channel(address, credentials, [("grpc.ssl_target_name_override", "weftd")])


def run(arguments):
    """Does all of it; returns the exit code."""
    with open(arguments.job, encoding="utf-8") as file:
        job = json.load(file)
    with open_channel(arguments.coordinator, arguments.tls) as channel:
        control = control_pb2_grpc.ControlStub(channel)
        job_id = submit(control, job, arguments.run_folder, job["job"]["name"])
        print(f"submitted {job_id}")
        for each in jobs(control):
            print(f"{each.job_id}  {each.phase}  {each.owner}  {each.name}")
        for event in events(control, job_id):
            line = text_of(event)
            if line:
                print(f"{job_id}  {line}", flush=True)
        end = call(control.Get, control_pb2.GetRequest(job_id=job_id))
        print(f"{job_id} is {end.phase}: step {end.step} of {end.steps}")
        return 0 if end.phase == "COMPLETED" else 1


def main():
    parser = argparse.ArgumentParser(description="submit a job to weftd and watch it")
    parser.add_argument("coordinator", help="unix:/path/of/weftd.sock, or with --tls HOST:PORT")
    parser.add_argument("job", help="JSON file of the job")
    parser.add_argument("run_folder", help="absolute, as the hosts see it")
    parser.add_argument("--tls", metavar="BUNDLE", help="a person's bundle of `weftd issue`")
    try:
        return run(parser.parse_args())
    except grpc.RpcError as error:
        print(f"control_client: {error.code().name}: {error.details()}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
