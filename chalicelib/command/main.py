"""`outscaler COMMAND …`: selects the command's module and turns every failure into one line and an exit code.

0    success
1    a finding, where a flag requested it (--strict)
2    bad input: one line per mistake on standard error; also unreadable files, unreachable AWS or clusters
3    `plan` could not read the node groups of a provider
70   an internal error: one line; OUTSCALER_TRACEBACK=1 shows the traceback
130  Ctrl-C or SIGTERM, and 141 when the reader of the output closed the pipe; nothing is printed for both
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

import msgspec

from chalicelib import __version__
from chalicelib.command import commands
from chalicelib.command.deployment_settings import stage_chosen
from chalicelib.command.output import as_error, one_line
from chalicelib.model.errors import BadInput, InputErrors, OutscalerError

OUTPUTS = ("table", "json", "yaml")
OK, FINDING, BAD_INPUT, OUR_BUG, INTERRUPTED, READER_GONE = 0, 1, 2, 70, 130, 141


class Command(msgspec.Struct, frozen=True):
    """One command. module: of `commands/`, imported only when the command is used; has add_arguments(parser) and
    run(args) -> int."""

    name: str
    module: str
    help: str

    def load(self) -> ModuleType:
        """Import the command's module and return it."""
        return importlib.import_module(f"{commands.__name__}.{self.module}")


COMMANDS = (
    Command("plan", "plan", "the changes that would be made now, and the reasons; never writes"),
    Command("explain", "explain", "the decision about one pod, node or group, and its reason; never writes"),
    Command("capture", "capture", "save a live cluster as files for plan; never writes to it"),
    Command("groups", "groups", "draft the node groups of a saved cluster from its nodes"),
    Command("validate", "validate", "check policy documents"),
    Command("init", "init", "write a first policy document from five answers"),
    Command("kubeconfig", "kubeconfig", "a kubeconfig with the token of Outscaler's service account"),
    Command("manifests", "manifests", "what stands in a cluster, for kubectl: rights, token, watcher"),
    Command("schema", "schema", "the JSON schema of a policy document, for editors"),
    Command("import", "import_policy", "convert settings and rules of CCE to a policy document"),
    Command("doctor", "doctor", "check a cluster, its vendors and secrets before anything acts"),
    Command("apply", "apply", "store a policy document; in force at the next tick"),
    Command("migrate", "migrate", "copy policies that an older release has stored to the policy table"),
    Command("get", "get", "clusters, a policy, operations, groups, nodes, waiting pods, the breaker"),
    Command("login", "login", "keep a deployment's tables, region and settings for the commands that follow"),
    Command("config", "config", "the deployment that commands use, and the other ones that login has kept"),
    Command("pause", "pause", "keep a cluster or a part of it unchanged for a time; planning goes on"),
    Command("resume", "resume", "end pauses before their time"),
    Command("retry", "retry", "end a back-off or a wait now, after its cause is removed"),
    Command("release", "release", "resume removals after a review of a tripped disruption limit"),
    Command("notify", "notify", "send a test notification; show open conditions and lost messages"),
    Command("history", "history", "versions of a policy, and what happened"),
    Command("ui", "ui", "the status page of all clusters, on this machine's loopback address"),
    Command("replay", "replay", "make a recorded plan again, also with another policy and over days"),
    Command("uninstall", "uninstall", "take Outscaler out of a cluster; shows it first, without --yes"),
    Command("completion", "completion", "a script for the shell that completes commands and arguments"),
    Command("shadow", "shadow", "compare a cluster in mode shadow with the autoscaler that acts there"),
)
_BY_NAME = {command.name: command for command in COMMANDS}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return the exit code; argv None: that of the process. Never raises."""
    for stream in (sys.stdout, sys.stderr):  # characters that the terminal's encoding lacks are printed as \\u…
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError, ValueError):
                stream.reconfigure(errors="backslashreplace")
    if argv is None:  # SIGTERM ends a command as Ctrl-C does, so that it removes what it has made
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except SystemExit as leaving:  # argparse exits after --help
        return leaving.code if isinstance(leaving.code, int) else OK
    except BaseException as error:  # last resort: a user never sees a traceback
        return _print_failure(error)
    return code


def _run(argv: list[str]) -> int:
    name = argv[0] if argv else ""
    if name in {"-h", "--help", "help"}:
        width = max(len(command.name) for command in COMMANDS)
        lines = [f"  {command.name:<{width}}  {command.help}" for command in COMMANDS]
        end = "outscaler COMMAND --help shows its arguments."
        sys.stdout.write("\n".join(["usage: outscaler COMMAND …", "", *lines, "", end, ""]))
        return OK
    if name == "--version":
        sys.stdout.write(f"outscaler {__version__}\n")
        return OK
    command = _BY_NAME.get(name)
    if command is None:
        raise _unknown(name)
    module = command.load()
    parser = _CommandParser(
        prog=f"outscaler {command.name}", description=f"{command.help.capitalize()}.", allow_abbrev=False
    )
    module.add_arguments(parser)
    parser.add_argument(
        "-o", "--output", choices=OUTPUTS, default="table", help="how to print the answer (default: table)"
    )
    parser.add_argument("--stage", default="", metavar="NAME", help="use this deployment of outscaler login")
    args = parser.parse_args(argv[1:])
    with stage_chosen(args.stage):
        code: int = module.run(args)
    return code


class _CommandParser(argparse.ArgumentParser):
    """Reports command line mistakes as bad input: one line, exit code 2."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(self.prog, message, f"see {self.prog} --help")


def _unknown(name: str) -> BadInput:
    from difflib import get_close_matches

    near = get_close_matches(name, _BY_NAME, n=1)
    remedy = f"write one of {', '.join(_BY_NAME)}, or --help"
    if not name:
        return BadInput("outscaler", "no command is given", remedy)
    return BadInput("outscaler", f"{name!r} is not a command", f"did you mean {near[0]}?" if near else remedy)


# -- failures


def _print_failure(error: BaseException) -> int:
    """Print the failure on standard error, and return the exit code."""
    code, lines = _failure(error)
    with contextlib.suppress(OSError, ValueError):  # standard error may be closed, too
        for line in lines:
            sys.stderr.write(f"{as_error(line, sys.stderr)}\n")
    return code


def _failure(error: BaseException) -> tuple[int, list[str]]:  # noqa: PLR0911 - a case per kind of failure
    """Return the exit code and the lines of a failure, by the first case that applies."""
    library = "" if isinstance(error, BadInput) else _library_failure(error)
    if library:
        return BAD_INPUT, [one_line(library)]
    match error:
        case KeyboardInterrupt():
            return INTERRUPTED, []
        case BrokenPipeError():  # `outscaler … | head`: the interpreter must not report unflushed output at exit
            with contextlib.suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, sys.stdout.fileno())
                os.close(nowhere)
            return READER_GONE, []
        case InputErrors():
            return BAD_INPUT, [one_line(str(problem)) for problem in error.problems]
        case BadInput():
            return BAD_INPUT, [one_line(str(error))]
        case OutscalerError():
            return BAD_INPUT, [one_line(f"outscaler: {error or type(error).__name__}")]
        case OSError(filename=where, strerror=what):
            return BAD_INPUT, [one_line(f"{where}: {what}" if where and what else f"outscaler: {what or error}")]
    if os.environ.get("OUTSCALER_TRACEBACK") == "1":
        return OUR_BUG, ["".join(traceback.format_exception(error)).rstrip()]
    if _is_of(error, _LIBRARIES):
        return BAD_INPUT, [one_line(f"{type(error).__name__}: {error}")]
    # The location without the message, because the message may contain confidential data.
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    remedy = "please report it (OUTSCALER_TRACEBACK=1 shows the traceback)"
    return OUR_BUG, [f"outscaler: internal error: {type(error).__name__}{where}; {remedy}"]


# The command line may not import AWS and network libraries, and most commands must start without them. Their exceptions
# are therefore recognised by class name anywhere in the chain of causes, because the store wraps them in errors of its
# own.
_OF_AWS = frozenset({"botocore", "boto3", "pynamodb"})
_LIBRARIES = _OF_AWS | {"requests", "urllib3"}


class _Trouble(msgspec.Struct, frozen=True):
    """One known failure. names: class names, or error codes of AWS responses."""

    place: str
    remedy: str
    names: frozenset[str]


_TROUBLES = (
    _Trouble(
        "AWS region",
        "set AWS_DEFAULT_REGION, or a region in the profile that AWS_PROFILE names",
        frozenset({"NoRegionError"}),
    ),
    _Trouble("AWS_PROFILE", "name a profile that is in ~/.aws/config, or unset it", frozenset({"ProfileNotFound"})),
    _Trouble(
        "AWS credentials",
        "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, to ones that are "
        "valid and may read and write the table",
        frozenset(
            {
                "NoCredentialsError",
                "PartialCredentialsError",
                "CredentialRetrievalError",
                "SSOError",
                "LoginError",
                "UnrecognizedClientException",
                "InvalidSignatureException",
                "ExpiredTokenException",
                "IncompleteSignatureException",
                "MissingAuthenticationTokenException",
                "AccessDeniedException",
            }
        ),
    ),
    _Trouble(
        "DynamoDB table",
        "name the deployment's table with --table or OUTSCALER_TABLE, and its region with AWS_DEFAULT_REGION",
        frozenset({"ResourceNotFoundException"}),
    ),
    _Trouble(
        "AWS endpoint",
        "check AWS_DEFAULT_REGION, AWS_ENDPOINT_URL and the network",
        frozenset({"ConnectionError", "HTTPClientError", "EndpointProviderError", "InvalidRegionError"}),
    ),
)


def _library_failure(error: BaseException) -> str:
    """Return one line with a remedy for what the AWS libraries raised; empty if none of them is in the chain, or the
    error is not known."""
    cause: BaseException | None = error
    causes: list[BaseException] = []
    while cause is not None and cause not in causes:
        causes.append(cause)
        if _is_of(cause, _OF_AWS):
            response = getattr(cause, "response", None)  # of botocore's ClientError
            answer = response.get("Error") if isinstance(response, dict) else None
            code = str(answer.get("Code") or "") if isinstance(answer, dict) else ""
            message = f"{code}: {answer.get('Message', '')}" if isinstance(answer, dict) and code else str(cause)
            names = {kind.__name__ for kind in type(cause).__mro__} | {code}
            for trouble in _TROUBLES:
                if trouble.names & names:
                    return f"{trouble.place}: {message.rstrip('.')}; {trouble.remedy}"
        cause = cause.__cause__ or cause.__context__
    return ""


def _is_of(error: BaseException, libraries: frozenset[str]) -> bool:
    return any(kind.__module__.partition(".")[0] in libraries for kind in type(error).__mro__)
