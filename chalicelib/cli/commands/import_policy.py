"""`outscaler import FILE…`: converts another autoscaler's configuration into one policy
document on standard output.

It reads Cluster Autoscaler's configuration in any of its forms
(docs/from-cluster-autoscaler.md), and settings of Huawei Cloud CCE's autoscaler add-on and
HorizontalNodeAutoscaler objects, from files only.

Settings that could not be converted, and fields that the document still lacks, are reported on
standard error and, for YAML, in comments before the document. `outscaler validate` checks whether
the document is complete.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from chalicelib.cli.arguments import SECRET_STORES, add_secret_arguments
from chalicelib.cli.deployment_settings import settings_here
from chalicelib.cli.migrate.autoscaler_input import AutoscalerInput, ImportArguments
from chalicelib.cli.migrate.autoscaler_policy import Converted, convert
from chalicelib.cli.migrate.cce_policy import PROVIDER, assemble, sort_documents
from chalicelib.cli.migrate.documents import MAX_BYTES
from chalicelib.cli.migrate.read_autoscaler import read_autoscaler
from chalicelib.cli.migrate.report import Row, Verdict, incomplete
from chalicelib.cli.migrate.scripts import COMMAND, ENV
from chalicelib.cli.output import one_line, warn
from chalicelib.cli.policy_files import load_document, place_of, read_document
from chalicelib.cli.serialize_policy import dump
from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.policy.diagnostics import Diagnostics, Scalar
from chalicelib.policy.settings.names_and_times import ZONE

_LACKING = 1
_WIDEST = 60
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
        help="Cluster Autoscaler's manifest, Helm values or command line, the object of Flux, Argo "
        "CD, K3s, Cluster API or EKS Anywhere that installs its chart, or a cloud-config of Cherry "
        "Servers; or settings of CCE's add-on "
        "(the answer of GET /api/v3/addons, one add-on, or its custom block) or "
        "HorizontalNodeAutoscaler objects, as JSON or YAML; - for standard input",
    )
    parser.add_argument(
        "--command", default="", metavar="TEXT", help="Cluster Autoscaler's command line itself"
    )
    parser.add_argument(
        "--name", default="", help="the cluster's name (default: its id, where a file says it)"
    )
    parser.add_argument(
        "--workload",
        default="",
        metavar="NS/NAME",
        help="which of several autoscalers in the files",
    )
    parser.add_argument("--container", default="", metavar="NAME", help="which of its containers")
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a variable, or the output of a template, whose value no file has; repeatable",
    )
    parser.add_argument(
        "--image-version", default="", metavar="1.29", help="the release whose defaults count"
    )
    parser.add_argument(
        "--inline-priorities",
        action="store_true",
        help="write the priority ConfigMap's literal names as priorities",
    )
    parser.add_argument(
        "--region", default="", help="the region of alicloud or CCE, the zone of exoscale"
    )
    add_secret_arguments(parser)
    parser.add_argument(
        "--kubeconfig-secret",
        default="",
        metavar="NAME",
        help="secret with the cluster's kubeconfig",
    )
    parser.add_argument(
        "--credentials-secret", default="", metavar="NAME", help="secret with the vendor's keys"
    )
    parser.add_argument("--cluster-id", default="", metavar="ID", help="CCE: the cluster's id")
    parser.add_argument(
        "--project-id", default="", metavar="ID", help="CCE: the id of its project in that region"
    )
    parser.add_argument(
        "--time-zone",
        default="UTC",
        metavar="ZONE",
        help="CCE: the zone of the crons of the objects (default: UTC)",
    )
    parser.add_argument(
        "--report", default="", metavar="FILE", help="write the report to this file, too"
    )
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 if something has no counterpart here"
    )
    parser.add_argument(
        "--skip-unknown", action="store_true", help="report unknown flags instead of refusing them"
    )


def run(args: argparse.Namespace) -> int:
    """Convert the files and return 0 once a document is printed; with --strict 1 where something is
    not here. Raises BadInput for files that cannot be read or have mistakes."""
    judge = settings_here()
    if judge.notice:
        warn(judge.notice)
    values = {name: getattr(args, name) for name in ImportArguments.__struct_fields__}
    prefix = judge.deployment.secret_prefix if args.secret_prefix is None else args.secret_prefix
    values["secret_prefix"] = SECRET_STORES[args.secret_store] + prefix
    report = Diagnostics("--time-zone")
    ZONE.read(Scalar(args.time_zone, plain=False, line=1, column=1), (), report)
    report.check()
    texts = _texts(args.files)
    if args.command:
        texts[COMMAND] = args.command
    if not texts:
        raise BadInput(
            "outscaler import", "one is required: FILE, - for standard input, or --command", ""
        )
    autoscaler = read_autoscaler(
        texts,
        workload=args.workload,
        container=args.container,
        environment=_environment(args.env),
        image_version=args.image_version,
    )
    if autoscaler is not None:
        return _import_autoscaler(autoscaler, ImportArguments(**values), args)
    return _import_cce(texts, ImportArguments(**values), args.output)


def _texts(files: list[str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for file in files:
        place = place_of(file)
        if place in texts:
            raise BadInput(place, "is named twice", "name each file once")
        texts[place] = read_document(file, MAX_BYTES, "settings")
        if _POLICY.search(texts[place]):
            raise BadInput(
                place,
                "is an Outscaler policy already",
                f"run outscaler validate {shlex.quote(file)}",
            )
    return texts


def _environment(pairs: Sequence[str]) -> dict[str, str]:
    """Return the variables of --env NAME=VALUE. Raises BadInput for another form."""
    environment: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise BadInput(ENV, "is not NAME=VALUE", "write it like --env CLUSTER_NAME=shop")
        environment[name] = value
    return environment


def _print(document: dict[str, Any], text: str, comments: Sequence[str], output: str) -> None:
    if output == "json":
        sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write("".join(f"# {line}\n" for line in comments) + text)


# -- Cluster Autoscaler ----------------------------------------------------------------------------


def _import_autoscaler(
    autoscaler: AutoscalerInput, arguments: ImportArguments, args: argparse.Namespace
) -> int:
    """Print the document and its report. Raises InputErrors for unknown words and mistakes."""
    import yaml

    converted = convert(autoscaler, arguments, skip_unknown=args.skip_unknown)
    document = converted.document
    text = yaml.safe_dump(
        document, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120
    )
    lines = [*_table(converted.rows), *_summary(converted, text)]
    print("\n".join(lines), file=sys.stderr)
    if args.report:
        try:
            Path(args.report).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        except OSError as error:
            problem = f"{args.report} cannot be written: {error.strerror}"
            raise BadInput("--report", problem, "name a file in a folder") from None
    _print(document | {"report": msgspec.to_builtins(converted.rows)}, text, lines, args.output)
    return _LACKING if args.strict and incomplete(converted.rows) else 0


def _table(rows: Sequence[Row]) -> list[str]:
    verdict_width = max(len(row.verdict) for row in rows)
    word_width = min(_WIDEST, max(len(row.word) for row in rows))
    lines = []
    for row in rows:
        place = f"{row.source}:{row.line}" if row.line else row.source
        cells = (row.path, row.text, f"({place})" if place else "")
        text = "  ".join(one_line(cell) for cell in cells if cell)
        lines.append(
            f"{row.verdict:<{verdict_width}}  {one_line(row.word):<{word_width}}  {text}".rstrip()
        )
    return lines


def _summary(converted: Converted, text: str) -> list[str]:
    """Return the number of rows by verdict, a line for all that is missing with its
    remedy, and the next command."""
    counted: Counter[Verdict] = Counter(row.verdict for row in converted.rows)
    del counted[Verdict.READ]
    counts = ", ".join(f"{counted[verdict]} {verdict}" for verdict in Verdict if counted[verdict])
    missing: list[str] = []
    try:
        load_document(text, "document")
    except InputErrors as error:
        missing += [str(problem).partition(": ")[2] for problem in error.problems]
    missing += [
        ": ".join(filter(None, (row.verdict, row.word, row.text)))
        for row in incomplete(converted.rows)
    ]
    if converted.secrets:
        secrets = ", ".join(converted.secrets)
        missing.append(f"create the secrets {secrets}: rows `{Verdict.TO_STORE}` have the commands")
    file = f"{converted.name}.yaml"
    return [
        f"{counts}; {'missing:' if missing else 'nothing is missing.'}",
        *(f"- {one_line(line)}" for line in missing),
        f"Next: outscaler validate {file} && outscaler doctor --policy {file} --kubeconfig FILE",
    ]


# -- Huawei Cloud CCE ------------------------------------------------------------------------------


def _import_cce(texts: dict[str, str], arguments: ImportArguments, output: str) -> int:
    """Print the policy, with what it still lacks on standard error and in comments.
    Raises BadInput, InputErrors."""
    import yaml

    policy, warnings = assemble(sort_documents(texts), arguments)
    text = dump(policy)
    lacking: list[str] = []
    try:
        warnings += tuple(
            warning.partition(": ")[2] for warning in load_document(text, "document")[1]
        )
    except InputErrors as error:
        lacking = [_with_flag(problem) for problem in error.problems]
    for warning in warnings:
        warn(warning)
    for problem in lacking:
        warn(f"not complete: {problem}")
    comments = [f"Imported settings of {policy.name}. Review them, then the plans in mode shadow."]
    comments += [f"Note: {warning}" for warning in warnings] + [
        f"Not complete: {problem}" for problem in lacking
    ]
    _print(yaml.safe_load(text), text, [one_line(comment) for comment in comments], output)
    return 0


def _with_flag(bad_input: BadInput) -> str:
    """Return an error of the document with its path, and the flag that resolves it."""
    path = bad_input.place.partition(": ")[2]
    flag = f", or give {_FLAGS[path]}" if path in _FLAGS else ""
    if not bad_input.remedy:
        return f"{path}: {bad_input.problem}"
    return f"{path}: {bad_input.problem}; {bad_input.remedy}{flag}"
