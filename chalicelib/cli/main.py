"""`outscaler COMMAND …`: selects the command's module and turns every failure into
one line and an exit code.

0    success
1    a finding, where a flag requested it (--strict)
2    bad input: one line per mistake on standard error; also unreadable files,
     unreachable AWS or clusters
3    `plan` could not read the node groups of a provider
70   an internal error: one line; OUTSCALER_TRACEBACK=1 shows the traceback
130  Ctrl-C or SIGTERM, and 141 when the reader of the output closed the pipe;
     nothing is printed for both
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import re
import shutil
import signal
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from types import ModuleType
from typing import NoReturn

import msgspec

from chalicelib import __version__
from chalicelib.cli import commands
from chalicelib.cli.arguments import not_one_of
from chalicelib.cli.deployment_settings import stage_chosen
from chalicelib.cli.output import JSONPATH, as_error, one_line
from chalicelib.model.errors import BadInput, InputErrors, OutscalerError

OUTPUTS = ("table", "json", "yaml")
"""Forms of an answer that every command has, beside jsonpath=TEMPLATE."""
OK, FINDING, BAD_INPUT, OUR_BUG, INTERRUPTED, READER_GONE = 0, 1, 2, 70, 130, 141
STAGE = "--stage"
_WIDEST_HELP = 100


class Command(msgspec.Struct, frozen=True):
    """One command. module: of `commands/`, imported only when the command is used; has
    add_arguments(parser) and run(args) -> int, and may have OUTPUTS. examples: command lines
    without `outscaler`, with comments."""

    name: str
    module: str
    help: str
    examples: tuple[str, ...]

    def load(self) -> ModuleType:
        """Import the command's module and return it."""
        return importlib.import_module(f"{commands.__name__}.{self.module}")


GROUPS: dict[str, tuple[Command, ...]] = {
    "Look at clusters": (
        Command(
            "get",
            "get",
            "clusters, groups, pools, nodes, pods, operations, policy, breaker",
            (
                "get # every cluster",
                "get groups shop -o wide",
                "get nodes shop -l group=workers -w # rows that change",
                "get groups -A --sort-by cpu # of all clusters",
                "get no shop -o jsonpath='{.nodes[*].node}'",
            ),
        ),
        Command(
            "explain",
            "explain",
            "why: the decision about one pod, node or group; never writes",
            (
                "explain pod web-7f9c --cluster shop # of the last pass",
                "explain node worker-3 my-cluster # of a saved cluster",
                "explain group workers --kubeconfig ~/.kube/config --policy prod.yaml",
            ),
        ),
        Command(
            "history",
            "history",
            "what happened, and the versions of the policy",
            (
                "history shop --since 24h",
                "history shop --kind operation --group workers",
                "history shop --follow",
            ),
        ),
        Command(
            "cost",
            "cost",
            "what a cluster costs per hour, and what for; savings",
            (
                "cost shop --by namespace --days 30",
                "cost my-cluster --policy prod.yaml # a saved cluster",
                "cost shop --with-policy new.yaml # over recorded days",
            ),
        ),
        Command(
            "advise",
            "advise",
            "schedules for what is needed at the same time of every day",
            (
                "advise shop # evidence, test on the last days",
                "advise shop -o yaml # for spec.schedules of the policy",
                "advise shop --days 28 --groups workers",
            ),
        ),
        Command(
            "shadow",
            "shadow",
            "compare mode shadow with the autoscaler that acts in the cluster",
            ("shadow shop --since 7d", "shadow accept shop/worker-17"),
        ),
        Command(
            "ui",
            "ui",
            "the status page of all clusters, on this machine only",
            ("ui", "ui --hosted --cluster shop"),
        ),
    ),
    "Try without a deployment": (
        Command(
            "plan",
            "plan",
            "the changes that would be made now, and the reasons; never writes",
            (
                "plan my-cluster # a saved cluster",
                "plan --context prod --policy prod.yaml # a live cluster",
                "plan my-cluster --add-pods 50xdeployment.yaml",
            ),
        ),
        Command(
            "capture",
            "capture",
            "save a live cluster as files for plan; never writes to it",
            ("capture my-cluster --context prod",),
        ),
        Command(
            "groups",
            "groups",
            "draft the node groups of a saved cluster from its nodes",
            ("groups my-cluster > my-cluster/manifest.json",),
        ),
        Command(
            "catalogue",
            "catalogue",
            "the machine types that a vendor sells, with prices and stock",
            (
                "catalogue exoscale --policy shop.yaml --secret KEY=key.json",
                "catalogue cherryservers --policy bare.yaml -o json",
            ),
        ),
        Command(
            "replay",
            "replay",
            "make recorded plans again, also with another policy",
            (
                "replay PLAN --cluster shop",
                "replay --cluster shop --since 7d --with-policy new.yaml",
            ),
        ),
    ),
    "Change a cluster": (
        Command(
            "apply",
            "apply",
            "store a policy document; in force at the next tick",
            ("apply prod.yaml --dry-run", "apply prod.yaml"),
        ),
        Command(
            "pause",
            "pause",
            "change nothing for a time, in all or a part of a cluster",
            (
                "pause shop --for 2h --reason 'release test'",
                "pause shop --removals --group workers --reason sale",
            ),
        ),
        Command(
            "resume",
            "resume",
            "end pauses before their time",
            ("resume shop", "resume shop --mode active"),
        ),
        Command(
            "retry",
            "retry",
            "end a back-off or a wait now, after its cause is removed",
            ("retry shop group workers", "retry shop node worker-17"),
        ),
        Command(
            "release",
            "release",
            "resume removals after a review of a tripped circuit breaker",
            ("get breaker shop", "release shop --for 20m"),
        ),
        Command(
            "pools",
            "pools",
            "delete empty groups that Outscaler has made; drain retiring ones",
            ("pools prune shop --pool general", "pools drain shop"),
        ),
        Command(
            "notify",
            "notify",
            "send a test notification; show open conditions, lost messages",
            ("notify test shop", "notify open shop"),
        ),
        Command(
            "uninstall",
            "uninstall",
            "take Outscaler out of a cluster; shows it first, without --yes",
            ("uninstall shop", "uninstall shop --yes"),
        ),
    ),
    "Set up": (
        Command(
            "login",
            "login",
            "keep a deployment's tables and settings for later commands",
            ("login dev",),
        ),
        Command(
            "config",
            "config",
            "the deployment that commands use, and other kept ones",
            ("config", "config use dev"),
        ),
        Command(
            "init",
            "init",
            "write a first policy document from five answers",
            ("init prod.yaml", "init prod.yaml --provider exoscale --location ch-gva-2"),
        ),
        Command(
            "import",
            "import_policy",
            "make a policy of the settings of Cluster Autoscaler, or of CCE",
            (
                "import cluster-autoscaler.yaml --name prod > prod.yaml",
                "import addons.json rules.yaml --name prod",
            ),
        ),
        Command(
            "validate",
            "validate",
            "check policy documents",
            ("validate prod.yaml", "validate --strict *.yaml"),
        ),
        Command(
            "schema",
            "schema",
            "the JSON schema of a policy document, for editors",
            ("schema > policy.schema.json",),
        ),
        Command(
            "doctor",
            "doctor",
            "check a cluster, its vendors and secrets before anything acts",
            ("doctor --policy prod.yaml --kubeconfig kubeconfig.outscaler",),
        ),
        Command(
            "kubeconfig",
            "kubeconfig",
            "a kubeconfig with the token of Outscaler's service account",
            ("kubeconfig --context prod > kubeconfig.outscaler",),
        ),
        Command(
            "manifests",
            "manifests",
            "what stands in a cluster, for kubectl: rights, token, watcher",
            ("manifests rbac | kubectl apply -f -",),
        ),
        Command(
            "migrate",
            "migrate",
            "copy an older release's policies to the policy table",
            ("migrate --dry-run", "migrate"),
        ),
        Command(
            "completion",
            "completion",
            "a script for the shell: completes commands, arguments, names",
            ("completion zsh > ~/.zfunc/_outscaler",),
        ),
    ),
}
COMMANDS = tuple(command for group in GROUPS.values() for command in group)
_BY_NAME = {command.name: command for command in COMMANDS}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return the exit code; argv None: that of the process. Never
    raises."""
    # characters that the terminal's encoding lacks are printed as \u…
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError, ValueError):
                stream.reconfigure(errors="backslashreplace")
    if argv is None:  # SIGTERM ends a command as Ctrl-C does, so that it removes what it has made
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if argv is None and "_ARGCOMPLETE" in os.environ:  # the shell asks for completions
            _BY_NAME["completion"].load().complete()
        code = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except SystemExit as leaving:  # argparse exits after --help
        return leaving.code if isinstance(leaving.code, int) else OK
    except BaseException as error:  # last resort: a user never sees a traceback
        return _print_failure(error)
    return code


def _run(argv: list[str]) -> int:
    argv = _with_stage_behind(argv)
    name = argv[0] if argv else ""
    if name == "help" and argv[1:]:
        argv, name = [argv[1], "--help"], argv[1]
    if name in {"-h", "--help", "help"}:
        sys.stdout.write(_overview())
        return OK
    if name == "--version":
        sys.stdout.write(f"outscaler {__version__}\n")
        return OK
    command = _BY_NAME.get(name)
    if command is None:
        raise _unknown(name)
    args = parser_of(command).parse_intermixed_args(argv[1:])
    with stage_chosen(args.stage):
        code: int = command.load().run(args)
    return code


def _with_stage_behind(argv: list[str]) -> list[str]:
    """Return the arguments with a --stage that precedes the command behind it."""
    flag, equals, name = argv[0].partition("=") if argv else ("", "", "")
    if flag != STAGE:
        return argv
    behind = argv[1:] if equals else argv[2:]
    if not equals and len(argv) < 2:
        raise BadInput(f"outscaler {STAGE}", "names no deployment", f"write {STAGE} NAME COMMAND")
    stage = [STAGE, name if equals else argv[1]]
    behind = _with_stage_behind(behind)
    takes_none = not behind or behind[0] not in _BY_NAME
    return behind if takes_none else [behind[0], *stage, *behind[1:]]


def _overview() -> str:
    width = max(len(command.name) for command in COMMANDS)
    lines = [f"usage: outscaler [{STAGE} NAME] COMMAND [ARGUMENTS]"]
    for title, members in GROUPS.items():
        lines += [
            "",
            f"{title}:",
            *(f"  {command.name:<{width}}  {command.help}" for command in members),
        ]
    return "\n".join(
        [*lines, "", "outscaler COMMAND --help shows a command's arguments and examples.", ""]
    )


def parser_of(command: Command) -> CommandParser:
    """Return the parser of a command, with its examples."""
    module = command.load()
    parser = CommandParser(
        prog=f"outscaler {command.name}",
        description=f"{command.help[0].upper()}{command.help[1:]}.",
        epilog="\n".join(("examples:", *_example_lines(command))),
        formatter_class=_Help,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    forms: tuple[str, ...] = getattr(module, "OUTPUTS", OUTPUTS)
    text = f"how to print the answer: {', '.join(forms)} or {JSONPATH}TEMPLATE (default: table)"
    action = parser.add_argument(
        "-o", "--output", metavar="FORM", type=_output_of(forms), default="table", help=text
    )
    action.completer = lambda **_: (*forms, JSONPATH)  # type: ignore[attr-defined]
    parser.add_argument(
        STAGE,
        default="",
        metavar="NAME",
        help="use this deployment of outscaler login; also before the command",
    )
    return parser


def _example_lines(command: Command) -> Iterator[str]:
    """Yield the examples with their comments below each other."""
    parts = [example.partition(" # ") for example in command.examples]
    width = max((len(line) for line, _, comment in parts if comment), default=0)
    for line, _, comment in parts:
        yield f"  outscaler {line:<{width}}  # {comment}" if comment else f"  outscaler {line}"


def _output_of(forms: tuple[str, ...]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text in forms or text.startswith(JSONPATH):
            return text
        raise argparse.ArgumentTypeError(not_one_of(text, (*forms, f"{JSONPATH}TEMPLATE")))

    return read


class _Help(argparse.RawDescriptionHelpFormatter):
    """Fits the terminal, breaks no word, and leaves the examples as they are."""

    def __init__(self, prog: str) -> None:
        super().__init__(
            prog,
            max_help_position=26,
            width=min(shutil.get_terminal_size().columns, _WIDEST_HELP) - 2,
        )

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(
            " ".join(text.split()), width, break_on_hyphens=False, break_long_words=False
        )


class CommandParser(argparse.ArgumentParser):
    """Reports command line mistakes as bad input: one line, exit code 2, with the nearest name."""

    def error(self, message: str) -> NoReturn:
        """Raise BadInput."""
        unknown = re.match(r"unrecognized arguments: (--[\w-]+)", message)
        flags = [flag for action in self._actions for flag in action.option_strings]
        close = get_close_matches(unknown[1], flags, n=1) if unknown else []
        remedy = f"did you mean {close[0]}?" if close else f"see {self.prog} --help"
        raise BadInput(self.prog, message, "" if message.endswith("?") else remedy)

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(
                action, not_one_of(str(value), tuple(map(str, action.choices)))
            )


def _unknown(name: str) -> BadInput:
    remedy = f"write one of {', '.join(_BY_NAME)}, or --help"
    if not name:
        return BadInput("outscaler", "no command is given", remedy)
    near = get_close_matches(name, _BY_NAME, n=1)
    return BadInput(
        "outscaler", f"{name!r} is not a command", f"did you mean {near[0]}?" if near else remedy
    )


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
        case BrokenPipeError():
            # `outscaler … | head`: the interpreter must not report unflushed output at exit
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
            return BAD_INPUT, [
                one_line(f"{where}: {what}" if where and what else f"outscaler: {what or error}")
            ]
    if os.environ.get("OUTSCALER_TRACEBACK") == "1":
        return OUR_BUG, ["".join(traceback.format_exception(error)).rstrip()]
    if _is_of(error, _LIBRARIES):
        return BAD_INPUT, [one_line(f"{type(error).__name__}: {error}")]
    # The location without the message, because the message may contain confidential data.
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    remedy = "please report it (OUTSCALER_TRACEBACK=1 shows the traceback)"
    return OUR_BUG, [f"outscaler: internal error: {type(error).__name__}{where}; {remedy}"]


# The command line may not import AWS and network libraries, and most commands must start without
# them. Their exceptions are therefore recognised by class name anywhere in the chain of causes,
# because the store wraps them in errors of its own.
_OF_AWS = frozenset({"botocore", "boto3", "pynamodb"})
_LIBRARIES = _OF_AWS | {"requests", "urllib3"}


_ENDPOINT = "AWS endpoint"


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
    _Trouble(
        "AWS_PROFILE",
        "name a profile that is in ~/.aws/config, or unset it",
        frozenset({"ProfileNotFound"}),
    ),
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
        (
            "name the deployment's table with --table or OUTSCALER_TABLE, and its region with "
            "AWS_DEFAULT_REGION"
        ),
        frozenset({"ResourceNotFoundException"}),
    ),
    _Trouble(
        _ENDPOINT,
        "check AWS_DEFAULT_REGION, AWS_ENDPOINT_URL and the network",
        frozenset(
            {"ConnectionError", "HTTPClientError", "EndpointProviderError", "InvalidRegionError"}
        ),
    ),
)


def _library_failure(error: BaseException) -> str:
    """Return one line with a remedy for what the AWS libraries raised; empty if none of them is in
    the chain, or the error is not known."""
    cause: BaseException | None = error
    causes: list[BaseException] = []
    while cause is not None and cause not in causes:
        causes.append(cause)
        if _is_of(cause, _OF_AWS):
            response = getattr(cause, "response", None)  # of botocore's ClientError
            answer = response.get("Error") if isinstance(response, dict) else None
            code = str(answer.get("Code") or "") if isinstance(answer, dict) else ""
            message = (
                f"{code}: {answer.get('Message', '')}"
                if isinstance(answer, dict) and code
                else str(cause)
            )
            names = {kind.__name__ for kind in type(cause).__mro__} | {code}
            for trouble in _TROUBLES:
                if trouble.names & names:
                    why = _why_not_connected(error) if trouble.place == _ENDPOINT else ""
                    return f"{trouble.place}: {message.rstrip('.')}{why}; {trouble.remedy}"
        cause = cause.__cause__ or cause.__context__
    return ""


def _why_not_connected(error: BaseException) -> str:
    from chalicelib.net.connection_problem import connection_problem, wrapped_errors

    why = connection_problem(wrapped_errors(error))
    return f" ({why})" if why else ""


def _is_of(error: BaseException, libraries: frozenset[str]) -> bool:
    return any(kind.__module__.partition(".")[0] in libraries for kind in type(error).__mro__)
