"""The part of `outscaler import` for Cluster Autoscaler: the document, its report, and the exit code."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from chalicelib.command.importers.autoscaler_input import AutoscalerInput
from chalicelib.command.importers.autoscaler_policy import Converted, convert
from chalicelib.command.importers.build_policy import Wanted
from chalicelib.command.importers.report import Row, Verdict, incomplete
from chalicelib.command.output import one_line
from chalicelib.command.policy_files import load_document
from chalicelib.model.errors import BadInput, InputErrors

_LACKING = 1
_WIDEST = 60


class Printed(msgspec.Struct, frozen=True):
    """How the result is printed. report: a file, or empty."""

    output: str = ""
    report: str = ""
    strict: bool = False
    skip_unknown: bool = False


def import_autoscaler(autoscaler: AutoscalerInput, wanted: Wanted, printed: Printed) -> int:
    """Print the document and its report. Return 1 with strict where something is not here, else 0. Raises InputErrors
    for unknown words and mistakes."""
    import yaml

    found = convert(autoscaler, wanted, skip_unknown=printed.skip_unknown)
    document = yaml.safe_dump(found.document, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
    table = [*_table(found.rows), *_summary(found, _lacking(document))]
    print("\n".join(table), file=sys.stderr)
    if printed.report:
        _write(printed.report, table)
    if printed.output == "json":
        data = found.document | {"report": msgspec.to_builtins(found.rows)}
        sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write("".join(f"# {line}\n" for line in table) + document)
    return _LACKING if printed.strict and incomplete(found.rows) else 0


def environment_of(pairs: Sequence[str]) -> dict[str, str]:
    """Return the variables of --env NAME=VALUE. Raises BadInput for another form."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise BadInput("--env", "is not NAME=VALUE", "write it like --env CLUSTER_NAME=shop")
        found[name] = value
    return found


def _table(rows: Sequence[Row]) -> list[str]:
    verdicts = max(len(row.verdict) for row in rows)
    words = min(_WIDEST, max(len(row.word) for row in rows))
    lines = []
    for row in rows:
        place = f"{row.source}:{row.line}" if row.line else row.source
        cells = (row.path, row.text, f"({place})" if place else "")
        text = "  ".join(one_line(cell) for cell in cells if cell)
        lines.append(f"{row.verdict:<{verdicts}}  {one_line(row.word):<{words}}  {text}".rstrip())
    return lines


def _summary(converted: Converted, lacking: Sequence[str]) -> list[str]:
    """Return the number of rows by verdict, a line for all that is missing with its remedy, and the next command."""
    counted: Counter[Verdict] = Counter(row.verdict for row in converted.rows)
    del counted[Verdict.READ]
    counts = ", ".join(f"{counted[verdict]} {verdict}" for verdict in Verdict if counted[verdict])
    rows = incomplete(converted.rows)
    missing = [*lacking, *(": ".join(filter(None, (row.verdict, row.word, row.text))) for row in rows)]
    if converted.secrets:
        missing.append(
            f"create the secrets {', '.join(converted.secrets)}: rows `{Verdict.TO_STORE}` have the commands"
        )
    file = f"{converted.name}.yaml"
    return [
        f"{counts}; {'missing:' if missing else 'nothing is missing.'}",
        *(f"- {one_line(text)}" for text in missing),
        f"Next: outscaler validate {file} && outscaler doctor --policy {file} --kubeconfig FILE",
    ]


def _lacking(document: str) -> tuple[str, ...]:
    try:
        load_document(document, "document")
    except InputErrors as error:
        return tuple(str(problem).partition(": ")[2] for problem in error.problems)
    return ()


def _write(path: str, lines: Sequence[str]) -> None:
    try:
        Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise BadInput("--report", f"{path} cannot be written: {error.strerror}", "name a file in a folder") from None
