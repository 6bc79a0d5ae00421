"""`chalice deploy`, `package` and `delete`, typed in the root of the repository.

Chalice alone would deploy without tables, queues and the roles' policies, build a larger package,
and reset the schedule's retries each time. app.py therefore calls `run_in_place` while the
`chalice` command loads it, and the commands of this repository run instead: `chalice deploy` is
`make deploy`. They run Chalice in a copy of the sources, which does not contain this module.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource

from infra.aws import package
from infra.aws.deploy import __main__ as deploy

# Chalice's command -> the same command here, of the stage and the other options that are obeyed
_COMMANDS: dict[str, tuple[frozenset[str], Callable[[dict[str, Any]], int]]] = {
    "deploy": (
        frozenset({"stage", "profile"}),
        lambda options: deploy.main(["deploy", "--stage", options["stage"]]),
    ),
    "delete": (
        frozenset({"stage", "profile"}),
        lambda options: deploy.main(["undeploy", "--stage", options["stage"]]),
    ),
    "package": (
        frozenset({"stage", "out"}),
        lambda options: package.main(["--stage", options["stage"], "--out", options["out"]]),
    ),
}


def run_in_place(context: click.Context | None) -> None:
    """Run this repository's command in place of Chalice's, and exit with its exit code.

    context: of the `chalice` command; None outside it. Returns without an effect for other commands
    of Chalice. An option that has no meaning here is a usage error.
    """
    name = context.info_name if context is not None and context.parent is not None else None
    if context is None or name not in _COMMANDS:
        return
    obeyed, command = _COMMANDS[name]
    for option in sorted(set(context.params) - obeyed):
        if context.get_parameter_source(option) is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                (
                    f"--{option.replace('_', '-')} has no effect; the stage's settings are in "
                    ".chalice/config.json"
                ),
                context,
            )
    if context.params.get("profile"):
        os.environ["AWS_PROFILE"] = context.params["profile"]
    raise SystemExit(command(context.params))
