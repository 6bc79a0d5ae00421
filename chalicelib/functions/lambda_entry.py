"""Entry and exit of a Lambda function: preloading at start, and the response
for a batch of messages.

A function's return value for a batch counts only where its event source has
ReportBatchItemFailures. Otherwise any return means success, and the failed messages are deleted.
The deployment states that failures are reported (BATCH_FAILURES). Where it does not, the function
raises before it processes anything: the messages return to their queue, and the deployment's
mistake shows with the first message instead of the first failure.

A cold start runs module code with more CPU than an invocation, so a function's imports are best
done then. app.py, however, imports every blueprint only to register it, and the webhook must not
pay for the planner's numpy. Lambda names the function it enters in `_HANDLER`: only that function
preloads its packages; all others are loaded when used.
"""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from chalicelib.model.errors import OutscalerError
from chalicelib.model.resource_names import prefix_of, queue_name
from chalicelib.runtime.log import failure, logger
from chalicelib.runtime.messages import cluster_name_ok
from chalicelib.runtime.runtime import BATCH_FAILURES, REPORTED, Runtime, runtime

_LONGEST_ID = 100  # characters of an operation's id that a log line shows


class FailuresNotReported(OutscalerError):
    """The deployment does not state that the event source reports failures, so any
    return would count as success."""

    def __init__(self) -> None:
        super().__init__(
            f"environment: {BATCH_FAILURES} is not {REPORTED}, so messages that fail could be lost "
            "and "
            "none is worked on; give the function's event source the response type "
            f"ReportBatchItemFailures and set {BATCH_FAILURES}={REPORTED}: deploying again does "
            "both"
        )


def preload(module: str, *packages: str) -> None:
    """Import packages and build the runtime now if Lambda enters this module; otherwise do nothing.

    Functions with latency-sensitive callers also preload the reading of policies. The others load
    it with their first message.

    Objects created at start live as long as the process. The garbage collector therefore ignores
    them, both while they are created (it is off since this package was imported) and afterwards.
    """
    if not os.environ.get("_HANDLER", "").startswith(f"{module}."):
        return
    # numpy would start a useless thread per processor
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        for package in packages:
            importlib.import_module(package)
        runtime()
        gc.freeze()
    finally:
        gc.enable()


def event_source(queue: str) -> dict[str, Any]:
    """Return how a function names its queue to Chalice.

    With a prefix, this is a name, from which Chalice makes the ARN in the account that it deploys
    to. Without one, it is a placeholder ARN: a name would become a mapping in Chalice's template,
    which the merge template cannot replace.
    """
    prefix = prefix_of(os.environ)
    if prefix:
        return {"queue": queue_name(prefix, queue)}
    return {"queue_arn": f"arn:aws:sqs:us-east-1:000000000000:{queue}"}


def each_record(
    event: Mapping[str, Any], work: Callable[[str, Runtime], object]
) -> dict[str, list[dict[str, str]]]:
    """Process every record of an SQS event; only the failed ones return to the queue.

    event: Lambda's event (`Records` with `messageId` and `body`). work: gets the body of a message.
    The result is SQS's partial batch response, which needs ReportBatchItemFailures at the event
    source (infra/aws/template_overlay.py). A body that cannot be decoded is reported
    as failed, too: after maxReceiveCount it is in the dead-letter queue for an operator. Raises
    FailuresNotReported, before any work, where the deployment does not state that failures are
    reported."""
    process = runtime()
    if not process.batch_failures_reported:
        raise FailuresNotReported
    failed: list[str] = []
    for record in event.get("Records", ()):
        identifier, body = record["messageId"], record["body"]
        try:
            with process.tracing.message(record.get("attributes", {}).get("AWSTraceHeader", "")):
                work(body, process)
        except OutscalerError as error:
            failed.append(identifier)
            logger.error("message failed", message_id=identifier, **_about(body), **failure(error))
        except Exception:
            failed.append(identifier)
            logger.exception("message failed unexpectedly", message_id=identifier, **_about(body))
    return {"batchItemFailures": [{"itemIdentifier": identifier} for identifier in failed]}


def invoked(event: object, work: Callable[[str, Runtime], object]) -> None:
    """Process an event that is itself a message, from an asynchronous invocation. Raises what the
    work raises, after a log line that names the cluster."""
    body = msgspec.json.encode(event).decode()
    process = runtime()
    try:
        with process.tracing.message(""):
            work(body, process)
    except OutscalerError as error:
        logger.error("invocation failed", **_about(body), **failure(error))
        raise


class _Names(msgspec.Struct, frozen=True):
    """The names in a message; the code that processes the message validates the rest."""

    cluster: str = ""
    operation: str = ""


def _about(body: Any) -> dict[str, Any]:
    """Return the fields that identify a failed message: the cluster and the
    operation that it names."""
    try:
        names = msgspec.json.decode(body, type=_Names)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, TypeError):
        names = _Names()
    cluster = names.cluster if cluster_name_ok(names.cluster) else "unknown"
    operation = {"operation": names.operation[:_LONGEST_ID]} if names.operation else {}
    return {"cluster": cluster, **operation}
