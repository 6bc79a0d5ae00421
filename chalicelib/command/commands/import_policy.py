"""`outscaler import FILE…`: converts another autoscaler's configuration into one policy document on standard output.

It reads Cluster Autoscaler's configuration in any of its forms (docs/from-cluster-autoscaler.md), and settings of
Huawei Cloud CCE's autoscaler add-on and HorizontalNodeAutoscaler objects, from files only.

Settings that could not be converted, and fields that the document still lacks, are reported on standard error and, for
YAML, in comments before the document. `outscaler validate` checks whether the document is complete.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys

from chalicelib.command.deployment_settings import settings_here
from chalicelib.command.import_autoscaler import Printed, environment_of, import_autoscaler
from chalicelib.command.importers.build_policy import PROVIDER, Wanted, assemble
from chalicelib.command.importers.command_input import COMMAND
from chalicelib.command.importers.input_files import MAX_BYTES, sort_out
from chalicelib.command.importers.read_autoscaler import read_autoscaler
from chalicelib.command.output import one_line, warn
from chalicelib.command.policy_files import load_document, place_of, read_document
from chalicelib.command.serialize_policy import dump
from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.model.policy import Policy
from chalicelib.policy.diagnostics import Diagnostics, Scalar
from chalicelib.policy.sections import ZONE

_POLICY = re.compile(r"^\s*[\"']?apiVersion[\"']?\s*:\s*[\"']?outscaler\.dev/", re.MULTILINE)
_SETTINGS = f"spec.providers.{PROVIDER}"
_FLAGS = {
    f"{_SETTINGS}.clusterId": "--cluster-id",
    f"{_SETTINGS}.region": "--region",
    f"{_SETTINGS}.projectId": "--project-id",
    f"{_SETTINGS}.credentialsSecret": "--credentials-secret",
    "spec.kubernetes": "--kubeconfig-secret",
    "spec.kubernetes.kubeconfigSecret": "--kubeconfig-secret",
    "metadata.name": "--name",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add FILE… and the arguments for values that no file contains."""
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="Cluster Autoscaler's manifest, Helm values, systemd unit or command line; or add-on settings "
        "(the answer of GET /api/v3/addons, one add-on, or its custom block) or "
        "HorizontalNodeAutoscaler objects, as JSON or YAML; - for standard input",
    )
    parser.add_argument("--command", default="", metavar="TEXT", help="Cluster Autoscaler's command line itself")
    parser.add_argument("--name", default="", help="the cluster's name (default: its id, where a file says it)")
    parser.add_argument("--cluster-id", default="", metavar="ID", help="the CCE cluster's id")
    parser.add_argument("--region", default="", help="the cluster's region, such as eu-west-101")
    parser.add_argument("--project-id", default="", metavar="ID", help="the id of its project in that region")
    parser.add_argument("--credentials-secret", default="", metavar="NAME", help="secret with accessKey and secretKey")
    parser.add_argument("--kubeconfig-secret", default="", metavar="NAME", help="secret with the cluster's kubeconfig")
    parser.add_argument(
        "--secret-prefix", metavar="PREFIX", help="prefix of the deployment's secrets (default: the deployment's)"
    )
    parser.add_argument(
        "--time-zone", default="UTC", metavar="ZONE", help="whose clock the crons of the objects mean (default: UTC)"
    )
    parser.add_argument(
        "--inline-priorities", action="store_true", help="write the priority ConfigMap's literal names as priorities"
    )
    parser.add_argument("--workload", default="", metavar="NS/NAME", help="which of several autoscalers in the files")
    parser.add_argument("--container", default="", metavar="NAME", help="which of its containers")
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a variable whose value no file has; repeatable",
    )
    parser.add_argument("--image-version", default="", metavar="1.29", help="the release whose defaults count")
    parser.add_argument("--report", default="", metavar="FILE", help="write the report to this file, too")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if something has no counterpart here")
    parser.add_argument("--skip-unknown", action="store_true", help="report unknown flags instead of refusing them")


def run(args: argparse.Namespace) -> int:
    """Convert the files and return 0 once a document is printed. Raises BadInput for files that cannot be read or have
    mistakes."""
    judge = settings_here()
    if judge.notice:
        warn(judge.notice)
    prefix = judge.deployment.secret_prefix if args.secret_prefix is None else args.secret_prefix
    given = {name: getattr(args, name) for name in Wanted.__struct_fields__}
    wanted = Wanted(**{**given, "time_zone": _zone(args.time_zone), "secret_prefix": prefix})
    texts = _texts(args.files)
    if args.command:
        texts[COMMAND] = args.command
    if not texts:
        raise BadInput("outscaler import", "one is required: FILE, - for standard input, or --command", "")
    autoscaler = read_autoscaler(
        texts,
        workload=args.workload,
        container=args.container,
        environment=environment_of(args.env),
        image_version=args.image_version,
    )
    if autoscaler is not None:
        printed = Printed(args.output, args.report, strict=args.strict, skip_unknown=args.skip_unknown)
        return import_autoscaler(autoscaler, wanted, printed)
    policy, warnings = assemble(sort_out(texts), wanted)
    document = dump(policy)
    lacking, further = _read_again(document)
    for warning in (*warnings, *further):
        warn(warning)
    for problem in lacking:
        warn(f"not complete: {problem}")
    if args.output == "json":
        sys.stdout.write(json.dumps(_as_data(document), indent=2, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write(_with_comments(policy, document, (*warnings, *further), lacking))
    return 0


def _texts(files: list[str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for file in files:
        if place_of(file) in texts:
            raise BadInput(place_of(file), "is named twice", "name each file once")
        texts[place_of(file)] = read_document(file, MAX_BYTES, "settings")
        if _POLICY.search(texts[place_of(file)]):
            raise BadInput(
                place_of(file), "is an Outscaler policy already", f"run outscaler validate {shlex.quote(file)}"
            )
    return texts


def _zone(name: str) -> str:
    report = Diagnostics("--time-zone")
    ZONE.read(Scalar(name, plain=False, line=1, column=1), (), report)
    report.check()
    return name


def _read_again(document: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (errors, warnings) that validate would report for the document, each with its path and the flag that
    resolves it."""
    try:
        _, warnings = load_document(document, "document")
    except InputErrors as error:
        return tuple(_with_flag(problem) for problem in error.problems), ()
    return (), tuple(warning.partition(": ")[2] for warning in warnings)


def _with_flag(bad_input: BadInput) -> str:
    path = bad_input.place.partition(": ")[2]
    flag = f", or give {_FLAGS[path]}" if path in _FLAGS else ""
    return (
        f"{path}: {bad_input.problem}; {bad_input.remedy}{flag}" if bad_input.remedy else f"{path}: {bad_input.problem}"
    )


def _as_data(document: str) -> object:
    import yaml

    return yaml.safe_load(document)


def _with_comments(policy: Policy, document: str, warnings: tuple[str, ...], lacking: tuple[str, ...]) -> str:
    lines = [f"Imported settings of {policy.name}. Review them, then the plans in mode shadow."]
    lines += [f"Note: {text}" for text in warnings] + [f"Not complete: {text}" for text in lacking]
    return "".join(f"# {one_line(line)}\n" for line in lines) + document
