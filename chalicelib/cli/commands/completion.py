"""`outscaler completion SHELL`: prints a script that completes commands, arguments,
files and names in a shell.

The script calls the command back (argcomplete). The arguments of the command that is being typed
are loaded, and no others; names of clusters, groups and nodes are read from the deployment's
tables. Whatever fails or takes longer than WAITED completes nothing and prints nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from chalicelib.model.errors import BadInput, OutscalerError

if TYPE_CHECKING:
    from chalicelib.store import Store

SHELLS = ("bash", "zsh", "fish")
WAITED = 2.0
"""Seconds for the names from the tables."""
_STAGE_BEFORE = "stage_before"
"""The attribute of a --stage that precedes the command."""
_CLUSTERS, _GROUPS, _NODES = "clusters", "groups", "nodes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add SHELL."""
    parser.add_argument(
        "shell", metavar="SHELL", choices=SHELLS, help=f"one of {', '.join(SHELLS)}"
    )


def run(args: argparse.Namespace) -> int:
    """Print the script. Always returns 0; raises BadInput where argcomplete is not installed."""
    try:
        from argcomplete.shell_integration import shellcode
    except ImportError:
        raise BadInput(
            "outscaler completion", "needs the package argcomplete", "pip install argcomplete"
        ) from None
    sys.stdout.write(shellcode(["outscaler"], shell=args.shell))
    return 0


def complete() -> None:
    """Answer the shell's request, which is in the environment, and end the process."""
    import argcomplete

    try:
        argcomplete.autocomplete(
            typed_parser(os.environ.get("COMP_LINE", "")), always_complete_options=False
        )
    except BaseException:  # a shell shows nothing of a failure
        os._exit(1)


def typed_parser(line: str) -> argparse.ArgumentParser:
    """Return a parser with every command, and the arguments of the one that the line names."""
    from chalicelib.cli.main import COMMANDS, STAGE, CommandParser, parser_of

    words = line.split()[1:]
    while words and words[0].partition("=")[0] == STAGE:
        words = words[1 if "=" in words[0] else 2 :]
    named = words[0] if words and (len(words) > 1 or line.endswith(" ")) else ""
    parser = CommandParser(prog="outscaler", allow_abbrev=False)
    action = parser.add_argument(STAGE, dest=_STAGE_BEFORE, metavar="NAME")
    action.completer = _deployments  # type: ignore[attr-defined]
    commands = parser.add_subparsers(metavar="COMMAND")
    for command in COMMANDS:
        parents = [parser_of(command)] if command.name == named else []
        sub = commands.add_parser(
            command.name,
            help=command.help,
            parents=parents,
            add_help=not parents,
            allow_abbrev=False,
        )
        for action in sub._actions:
            _attach(action, command.name)
    return parser


# -- what completes an argument


def _attach(action: argparse.Action, command: str) -> None:
    """Attach the completer of an argument: that of its command and name, else of
    what its metavar stands for."""
    from argcomplete.completers import DirectoriesCompleter, FilesCompleter

    if hasattr(action, "completer") or action.choices is not None:
        return
    names = (
        _OF_ARGUMENT.get(f"{command} {action.dest}"),
        _OF_OPTION.get(action.dest),
        _OF_METAVAR.get(str(action.metavar)),
    )
    completer = next(filter(None, names), None)
    if completer is None:
        completer = {"FILE": FilesCompleter(), "DIR": DirectoriesCompleter()}.get(
            str(action.metavar)
        )
    action.completer = completer or _nothing  # type: ignore[attr-defined]


def _nothing(**_: object) -> Iterable[str]:
    return ()


def _names_of(kind: str) -> Callable[..., Iterable[str]]:
    def names(parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
        return stored_names(parsed_args, kind)

    return names


def _get_words(**_: object) -> Iterable[str]:
    from chalicelib.cli.commands.get import THINGS

    return [thing.name for thing in THINGS]


def _kinds(**_: object) -> Iterable[str]:
    return ("pod", "node", "group")


def _names_of_kind(parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
    """Complete the NAME of `get`, `explain` and `retry`, whose kind was typed before it,
    and in `get` the cluster."""
    from chalicelib.cli.commands.get import thing_named

    if "names" in parsed_args and not parsed_args.name:
        return ()
    word = getattr(parsed_args, "what", None) or getattr(parsed_args, "kind", "") or ""
    thing = thing_named(word)
    return stored_names(parsed_args, thing.name) if thing is not None else ()


def _contexts(parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
    """Complete --context with the contexts of --kubeconfig, otherwise of kubectl's kubeconfig."""
    import yaml

    from chalicelib.cli.kubeconfig_files import kubeconfig_of, read_kubeconfig

    try:
        text = read_kubeconfig(
            getattr(parsed_args, "kubeconfig", None) or kubeconfig_of(os.environ)
        )
        return [str(context["name"]) for context in yaml.safe_load(text)["contexts"]]
    except (OutscalerError, OSError, ValueError, yaml.YAMLError, KeyError, TypeError):
        return ()


def _folders_after_a_name(
    prefix: str, parsed_args: argparse.Namespace, **_: object
) -> Iterable[str]:
    """Complete the DIR of `explain`, which follows NAME."""
    from argcomplete.completers import DirectoriesCompleter

    return DirectoriesCompleter()(prefix) if getattr(parsed_args, "name", None) else ()


def _deployments(**_: object) -> Iterable[str]:
    """Complete the deployments that `outscaler login` has kept."""
    from chalicelib.cli.deployment_settings import load_logins

    try:
        return [login.stack for login in load_logins().deployments]
    except (OutscalerError, OSError):
        return ()


def _manifests(**_: object) -> Iterable[str]:
    from chalicelib.cli.commands.manifests import FILES

    return FILES


_OF_OPTION: dict[str, Callable[..., Iterable[str]]] = {"context": _contexts, "stage": _deployments}
_OF_METAVAR: dict[str, Callable[..., Iterable[str]]] = {
    "CLUSTER": _names_of(_CLUSTERS),
    "GROUP": _names_of(_GROUPS),
}
_OF_ARGUMENT: dict[str, Callable[..., Iterable[str]]] = {
    "config name": _deployments,
    "manifests names": _manifests,
    "get what": _get_words,
    "get names": _names_of_kind,
    "explain kind": _kinds,
    "explain name": _names_of_kind,
    "explain folder": _folders_after_a_name,
    "explain cluster": _names_of(_CLUSTERS),
    "retry kind": lambda **_: ("group", "node", "operation"),
    "retry name": _names_of_kind,
    "replay cluster": _names_of(_CLUSTERS),
    "shadow words": _names_of(_CLUSTERS),
    "ui cluster": _names_of(_CLUSTERS),
}


# -- names from the tables


def stored_names(args: argparse.Namespace, kind: str) -> list[str]:
    """Return the names of clusters, or of the groups, nodes or pods of the cluster that the
    arguments name; none where the tables do not answer in time. A name that would do more in a
    shell than stand there is left out."""
    names: list[str] = []

    def read() -> None:
        with contextlib.suppress(BaseException):
            names.extend(read_names(args, kind))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(WAITED)
    return (
        []
        if thread.is_alive()
        else [name for name in names if name.isprintable() and name[:1] not in ("", "-")]
    )


def read_names(args: argparse.Namespace, kind: str) -> list[str]:
    """Return the same without a limit of time. Raises BadInput, StoreError."""
    from chalicelib.cli.deployment_settings import stage_chosen
    from chalicelib.cli.store_access import open_store
    from chalicelib.cli.stored_rows import StoredCluster

    tables = {
        "table": "",
        "policy_table": "",
        **{key: value for key, value in vars(args).items() if value is not None},
    }
    stage = getattr(args, "stage", None) or getattr(args, _STAGE_BEFORE, None)
    with stage_chosen(stage or ""):
        store: Store = open_store(argparse.Namespace(**tables))
        cluster, clusters = _cluster_of(args), list(store.policies.names())
        if kind == _CLUSTERS:
            return clusters
        if not cluster and len(clusters) != 1:
            return []
        return StoredCluster.read(store, cluster or clusters[0]).names(kind)


def _cluster_of(args: argparse.Namespace) -> str:
    """Return the cluster that the line names: `explain` has it in --cluster,
    the others as an argument."""
    for name in ("cluster", "name"):
        value: Any = getattr(args, name, None)
        if isinstance(value, str) and value:
            return value
    return ""
