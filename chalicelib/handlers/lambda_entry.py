"""The edges of a Lambda function: what is loaded while it starts, and what is given back for a batch.

What a function returns for a batch counts only where its event source has ReportBatchItemFailures. Where it has not,
any return means success and the failed messages are deleted. The deployment says that it has (BATCH_FAILURES). Where
nothing says so, the function raises before it works on anything: the messages return to their queue, and the
deployment's mistake is seen with the first message and not with the first one that fails.

A cold start runs module code with more CPU than the invocation gets, so what a function needs is best loaded then.
app.py, however, imports every blueprint just to register it, and the webhook must not pay for the planner's numpy.
Lambda names the function it enters in `_HANDLER`: only that one loads its rooms early; everyone else loads when used.
"""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from chalicelib.dispatch.messages import cluster_name_ok
from chalicelib.model.errors import OutscalerError
from chalicelib.model.resource_names import prefix_of, queue_name
from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.runtime import BATCH_FAILURES, REPORTED, Runtime, runtime

_LONGEST_ID = 100  # characters of an operation's id that a log line shows


class FailuresNotReported(OutscalerError):
    """The event source would take any return for success, as far as the deployment says."""

    def __init__(self) -> None:
        super().__init__(
            f"environment: {BATCH_FAILURES} is not {REPORTED}, so messages that fail could be lost and "
            "none is worked on; give the function's event source the response type "
            f"ReportBatchItemFailures and set {BATCH_FAILURES}={REPORTED}: deploying again does both"
        )


def preload(module: str, *rooms: str) -> None:
    """Import rooms and build the runtime now, if Lambda enters this module; do nothing anywhere else.

    Functions that somebody waits for name the reading of policies among the rooms. The others load it with their first
    message.

    The objects that a start makes live as long as the process. So the garbage collector does not look at them: not
    while they are made (it is off since this package was imported), and not afterwards.
    """
    if not os.environ.get("_HANDLER", "").startswith(f"{module}."):
        return
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy starts a thread for each processor, to no use here
    try:
        for room in rooms:
            importlib.import_module(room)
        runtime()
        gc.freeze()
    finally:
        gc.enable()


def event_source(queue: str) -> dict[str, Any]:
    """How a function names its queue to Chalice.

    With a prefix by name, of which Chalice makes the ARN in the account that it deploys to. Without one by an ARN that
    stands for nothing: a name would become a mapping in Chalice's template, which the merge template cannot replace.
    """
    prefix = prefix_of(os.environ)
    if prefix:
        return {"queue": queue_name(prefix, queue)}
    return {"queue_arn": f"arn:aws:sqs:us-east-1:000000000000:{queue}"}


def each_record(event: Mapping[str, Any], work: Callable[[str, Runtime], object]) -> dict[str, list[dict[str, str]]]:
    """Do the work for every record of an SQS event; the failed ones go back to the queue, and only those.

    event: what Lambda gives (`Records` with `messageId` and `body`). The answer is SQS's partial batch response, which
    needs ReportBatchItemFailures at the event source (infra/aws/template_overlay.py). A body that nobody can read is
    reported as failed too: after maxReceiveCount it lies in the dead-letter queue for a person to see. Raises
    FailuresNotReported, before any work, where the deployment does not say that failures are reported.
    """
    here = runtime()
    if not here.batch_failures_reported:
        raise FailuresNotReported
    failed = [record["messageId"] for record in _records(event) if not _done(record, work, here)]
    return {"batchItemFailures": [{"itemIdentifier": identifier} for identifier in failed]}


def invoked(event: object, work: Callable[[str, Runtime], object]) -> None:
    """Do the work for an event that is a message itself: an asynchronous invocation. Raises what the work raises, after
    a line in the log that names the cluster."""
    body = msgspec.json.encode(event).decode()
    try:
        work(body, runtime())
    except OutscalerError as error:
        logger.error("invocation failed", **_about(body), **failure(error))
        raise


def _records(event: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    records: Iterable[Mapping[str, Any]] = event.get("Records", ())
    return records


class _Names(msgspec.Struct, frozen=True):
    """What a message is about; the rest of it, and its being right, is for whoever carries it out."""

    cluster: str = ""
    operation: str = ""


def _about(body: Any) -> dict[str, Any]:
    """The fields by which a failed message is found again: the cluster and the operation that it names."""
    try:
        names = msgspec.json.decode(body, type=_Names)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, TypeError):
        names = _Names()
    cluster = names.cluster if cluster_name_ok(names.cluster) else "unknown"
    operation = {"operation": names.operation[:_LONGEST_ID]} if names.operation else {}
    return {"cluster": cluster, **operation}


def _done(record: Mapping[str, Any], work: Callable[[str, Runtime], object], here: Runtime) -> bool:
    try:
        work(record["body"], here)
    except OutscalerError as error:
        logger.error("message failed", message_id=record["messageId"], **_about(record["body"]), **failure(error))
        return False
    except Exception:
        logger.exception("message failed unexpectedly", message_id=record["messageId"], **_about(record["body"]))
        return False
    return True
