"""`python -m infra.aws.deploy deploy --stage dev`: deploys a stage to the account of the
credentials, checks it, or removes it."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import boto3
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from chalicelib.cli.first_pass import LONGEST, report
from chalicelib.model.errors import BadInput, OutscalerError
from chalicelib.model.resource_names import state_table_of
from chalicelib.reasons.words import some
from infra.aws.deploy import undeploy
from infra.aws.deploy.account_settings import shown
from infra.aws.deploy.gateway import readers_key
from infra.aws.deploy.stage import Stage, load, locate
from infra.aws.deploy.steps import Deployment, graph_only
from infra.aws.package import PackagingFailed
from infra.tools.interruptible import run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Exit codes: 0 success, 1 if a setting differs from the wanted one, 2 if an
    error must be corrected first."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.aws.deploy", description="deploy a stage with Chalice"
    )
    parser.add_argument(
        "what",
        choices=sorted(_COMMANDS),
        help="; ".join(f"{name}: {command.__doc__}" for name, command in sorted(_COMMANDS.items())),
    )
    parser.add_argument("--stage", default="dev", help="a stage of .chalice/config.json (dev)")
    parser.add_argument(
        "--with-table",
        action="store_true",
        help="undeploy: delete the tables too, with all they hold",
    )
    parser.add_argument(
        "--package",
        type=Path,
        metavar="ZIP",
        help="deploy: the functions' zip, such as that of a release; it is not built then",
    )
    parser.add_argument(
        "--no-wait",
        action="store_true",
        help="deploy: do not wait for the first pass of the clusters",
    )
    given = parser.parse_args(arguments)
    try:
        session = boto3.Session()
        stage = locate(load(given.stage), session)
        return _COMMANDS[given.what](stage, session, given)
    except (OutscalerError, PackagingFailed) as error:
        sys.stderr.write(f"{error}\n")
    except (BotoCoreError, ClientError, ResponseParserError) as error:
        sys.stderr.write(f"AWS: {str(error)[:_LONGEST]}; the same command continues\n")
    except KeyboardInterrupt:
        sys.stderr.write("broken off; the same command continues\n")
    return 2


def _deploy(stage: Stage, session: boto3.Session, given: argparse.Namespace) -> int:
    """run all steps, wait for the first pass, then print the addresses and what to do next"""
    if given.package and not given.package.is_file():
        raise BadInput("--package", f"{given.package} is no file", "give the zip of a release")
    made = Deployment(stage, session, _say)
    wrong = made.deploy(given.package)
    for setting in wrong:
        _say(
            f"not as it should be: {setting.place} is {shown(setting.found)}, not "
            f"{shown(setting.wanted)}"
        )
    _tell(stage, made, session)
    clusters = made.clusters()
    if clusters and not given.no_wait:
        _await_passes(made, clusters)
    _tell_next(stage, clusters)
    return 1 if wrong else 0


def _await_passes(made: Deployment, clusters: Sequence[str]) -> None:
    """Say how long the first pass takes. The deployment is complete, so nothing here makes it
    fail."""
    stopped = sorted({"tick", "reconcile"} & made.stopped)
    if stopped:
        _say(f"no pass is awaited: {' and '.join(stopped)} stopped (concurrency 0)")
        return
    _say(f"waiting for the first pass of {some(clusters)}, for {LONGEST:.0f} s at most")
    try:
        lines = report(made.first_passes(clusters))
    except (OutscalerError, BotoCoreError, ClientError) as error:
        lines = [f"whether there was a pass cannot be read ({str(error)[:_LONGEST]})"]
    except KeyboardInterrupt:
        lines = ["not waited for; the deployment is complete"]
    for line in lines:
        _say(line)


def _check(stage: Stage, session: boto3.Session, given: argparse.Namespace) -> int:
    """check all settings without changing anything"""
    del given
    made = Deployment(stage, session, _say)
    wrong = list(made.check(made.graph()))
    for setting in wrong:
        _say(f"{setting.place} is {shown(setting.found)}, not {shown(setting.wanted)}")
    if not wrong:
        _say(f"stage {stage.name} is as it should be")
    return 1 if wrong else 0


def _undeploy(stage: Stage, session: boto3.Session, given: argparse.Namespace) -> int:
    """delete everything except the tables"""
    doomed = undeploy.tables(stage, session) if given.with_table else []
    if doomed and not _sure(stage, doomed):
        return 2
    graph = graph_only(stage)
    for line in undeploy.remove(stage, graph, session):
        _say(f"deleted {line}")
    for table in doomed:
        undeploy.remove_table(table, session)
        _say(f"deleted table {table}")
    for table in [] if doomed else undeploy.tables(stage, session):
        _say(
            f"kept table {table}: its policies and timers are used again by make deploy "
            f"STAGE={stage.name}"
        )
    return 0


def _sure(stage: Stage, doomed: Sequence[str]) -> bool:
    """Ask for confirmation twice. Return False unless both answers match, e.g. if
    standard input is empty."""
    _say(
        f"This deletes {' and '.join(doomed)} in account {stage.account}, {stage.region}: every "
        "policy, every timer."
    )
    questions = (
        (f"Delete them? Write the stage ({stage.name}): ", stage.name),
        (
            f"Really? Write the table's name ({state_table_of(stage.prefix)}): ",
            state_table_of(stage.prefix),
        ),
    )
    for question, answer in questions:
        try:
            if input(question).strip() != answer:
                raise EOFError
        except EOFError:
            sys.stderr.write("nothing was deleted\n")
            return False
    return True


def _tell(stage: Stage, made: Deployment, session: boto3.Session) -> None:
    key = readers_key(stage, session.client("apigateway"))
    _say("")
    _say(f"stage    {stage.name} in account {stage.account}, {stage.region}")
    _say(f"table    {state_table_of(stage.prefix)}")
    _say(f"webhook  {made.webhook()}")
    if key:
        _say(f"readers  aws apigateway get-api-key --include-value --api-key {key}")
    _say("")


def _tell_next(stage: Stage, clusters: Sequence[str]) -> None:
    """Print the commands that follow. clusters: those with passes."""
    prefix = stage.config["environment_variables"]["OUTSCALER_SECRET_PREFIX"]
    command = "outscaler" if shutil.which("outscaler") else ".venv/bin/outscaler"
    store = "aws ssm put-parameter --type SecureString --tier Intelligent-Tiering"
    first = (
        f"{command} init NAME.yaml --name NAME",
        f"{command} manifests rbac token | kubectl apply -f -",
        f"{command} kubeconfig > kubeconfig",
        f"{store} --name /{prefix}NAME/kubeconfig --value file://kubeconfig",
        f"{command} doctor --policy NAME.yaml --kubeconfig kubeconfig",
        f"{command} apply NAME.yaml --wait",
    )
    _say(f"next{'' if clusters else ', for a cluster NAME'} (docs/start.md):")
    _say(f"  {command} login {stage.name}")
    for line in () if clusters else first:
        _say(f"  {line}")
    _say(f"  {command} get")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


_LONGEST = 600  # characters of a response shown in an error

_COMMANDS: dict[str, Callable[[Stage, boto3.Session, argparse.Namespace], int]] = {
    "deploy": _deploy,
    "check": _check,
    "undeploy": _undeploy,
}

if __name__ == "__main__":
    run(main)
