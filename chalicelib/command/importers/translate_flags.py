"""Translates flags of a command line to spec.options and spec.scanInterval.

Values are read as Go reads them and written as Outscaler's policy writes them. Flags with their own place in the
document (the provider's, the kubeconfig's) are left to translate_providers.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from chalicelib.command.importers.autoscaler_input import Argument
from chalicelib.command.importers.draft import Draft
from chalicelib.command.importers.flag_table import KNOWN, MAX_EMPTY_BULK_DELETE, Fate, KnownFlag, nearest
from chalicelib.command.importers.report import Verdict
from chalicelib.command.importers.version_defaults import order_of, release_defaults
from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.model.policy import Options
from chalicelib.model.quantity import format_duration, parse_duration
from chalicelib.policy import diagnostics
from chalicelib.policy.diagnostics import Diagnostics, quote
from chalicelib.policy.option_tables import OptionDefinition, Status
from chalicelib.policy.options import FLAGS, OptionValues, attribute, check_options, default_text
from chalicelib.policy.value_types import UNSET

Version = tuple[int, int] | None
Given = Mapping[str, Sequence[Argument]]

SCAN_INTERVAL = (5.0, 3600.0)  # seconds
_BOOLEANS = dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), "true")
_BOOLEANS |= dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), "false")
_WHOLE = re.compile(r"([+-]?)(0[xX]_?[0-9a-fA-F][0-9a-fA-F_]*|0[bB]_?[01][01_]*|0[oO]_?[0-7][0-7_]*|[0-9][0-9_]*)\Z")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\Z")
_LONGEST_NUMBER = 40
_LISTS = frozenset(
    {
        "bypassed-scheduler-names",
        "allowed-scheduler-names",
        "gpu-total",
        "startup-taint",
        "startup-taint-prefix",
        "status-taint",
        "balancing-ignore-label",
        "balancing-label",
        "nodes",
        "node-group-auto-discovery",
    }
)
_TIED = frozenset({"most-pods", "least-waste", "least-nodes", "price", "priority"})  # may leave several options
_TIES = "Cluster Autoscaler draws between equal groups, here the first id is taken; {},random draws"
_SPLIT = frozenset({"bypassed-scheduler-names", "allowed-scheduler-names"})
_NEVER_BEFORE = (1, 25)  # the last releases that read max-empty-bulk-delete alone


def group_arguments(arguments: Sequence[Argument]) -> dict[str, list[Argument]]:
    """Return the arguments by flag, in the order of the first of each."""
    found: dict[str, list[Argument]] = {}
    for argument in arguments:
        found.setdefault(argument.flag, []).append(argument)
    return found


def translate_flags(arguments: Sequence[Argument], version: Version, draft: Draft, *, skip_unknown: bool) -> None:
    """Write options, the scan interval and their rows into the draft. Mistakes go there, too."""
    given = group_arguments(arguments)
    sources: dict[str, list[Argument]] = {}
    silent: dict[str, list[Argument]] = {}
    for flag, found in given.items():
        known = KNOWN.get(flag)
        if known is None:
            _unknown(found, draft, skip_unknown=skip_unknown)
        elif known.fate is Fate.NOTHING:
            silent.setdefault(known.reason, []).extend(found)
        elif known.fate is Fate.ALWAYS:
            _always(known, _last(found, draft), draft)
        elif known.fate is Fate.RENAMED:
            _renamed(known, found, given, version, draft, sources)
        elif known.fate is not Fate.PLACE:
            sources.setdefault(flag, []).extend(found)
    in_force = _read_all(sources, version, draft)
    for reason, words in silent.items():
        draft.row(words[0].place, ", ".join(word.word for word in words), Verdict.NO_EFFECT, "", reason)
    _scan_interval(given.get("scan-interval", ()), draft)
    _check_together(sources, in_force, version, draft)
    _write_release_defaults(sources, in_force, version, draft)


def normalised(option: OptionDefinition, argument: Argument) -> Any:
    """Return the value as a document would state it, from text as Go's flags take it. Raises BadInput, InputErrors."""
    value = _read(option, (argument,))
    return option.kind.show(value)


def read_boolean(argument: Argument) -> bool:
    """Return a Go boolean; a flag without a value is true. Raises BadInput."""
    word = _BOOLEANS.get("true" if argument.value is None else argument.value)
    if word is None:
        raise BadInput(_where(argument), f"{quote(argument.value or '')} is not true or false", "write true or false")
    return word == "true"


def _unknown(found: Sequence[Argument], draft: Draft, *, skip_unknown: bool) -> None:
    near = nearest(found[0].flag)
    hint = f"did you mean --{near}?" if near else ""
    for argument in found:
        draft.row(argument.place, argument.word, Verdict.UNKNOWN, "", hint)
        if not skip_unknown:
            remedy = hint or "remove the flag, or give --skip-unknown"
            draft.problem(argument.place, f"--{argument.flag[:60]} is not a flag of any release", remedy)


def _last(found: Sequence[Argument], draft: Draft) -> Argument:
    for earlier in found[:-1]:
        draft.row(earlier.place, earlier.word, Verdict.TOLD, "", "given again later; the last one counts")
    return found[-1]


def _always(known: KnownFlag, argument: Argument, draft: Draft) -> None:
    try:
        value = read_boolean(argument)
    except BadInput as error:
        draft.add(error)
        return
    verdict = Verdict.NO_EFFECT if value else Verdict.TOLD
    draft.row(argument.place, argument.word, verdict, "", known.reason if value else "false has no effect here")


def _renamed(
    known: KnownFlag,
    found: list[Argument],
    given: Given,
    version: Version,
    draft: Draft,
    sources: dict[str, list[Argument]],
) -> None:
    if known.flag == MAX_EMPTY_BULK_DELETE and (version is None or version >= _NEVER_BEFORE):
        for argument in found:
            draft.row(argument.place, argument.word, Verdict.NO_EFFECT, "", "releases since 1.25 use the newer flag")
        return
    if known.becomes in given and known.becomes not in _LISTS:
        for argument in found:
            draft.row(argument.place, argument.word, Verdict.TOLD, "", f"--{known.becomes} is given, which counts")
        return
    sources.setdefault(known.becomes, []).extend(found)


def _read_all(sources: Mapping[str, list[Argument]], version: Version, draft: Draft) -> dict[str, Any]:
    """Write options into the draft. Return the values in force by field of model.Options."""
    in_force: dict[str, Any] = {}
    for flag, found in sources.items():
        option = FLAGS[flag]
        counting = _list_items(flag, found, draft) if flag in _LISTS else [_last(found, draft)]
        if flag == "expander":
            counting = [_expander_chain(counting[0], draft)]
        if not counting:
            continue
        if option.status is not Status.IN_FORCE and counting[-1].value == default_text(option) == "":
            draft.row(counting[-1].place, counting[-1].word, Verdict.NO_EFFECT, "", "the default")
            continue
        try:
            value = _read(option, counting)
        except BadInput as error:
            draft.add(error)
            continue
        shown = option.kind.show(value)
        if option.status is Status.IN_FORCE:
            in_force[attribute(option)] = value
            _keep(option, shown, value, counting, version, draft)
        else:
            _keep_for_later(option, shown, counting, draft)
    return in_force


def _expander_chain(argument: Argument, draft: Draft) -> Argument:
    """Return a chain of expanders without what follows `random`, and with a text on ties if it has no `random`."""
    names = [name.strip() for name in (argument.value or "").split(",")]
    if "random" not in names:
        tied = all(name in _TIED for name in names)
        return msgspec.structs.replace(argument, read_as=_TIES.format(argument.value)) if tied else argument
    end = names.index("random") + 1
    for name in names[end:]:
        text = "nothing is left to choose after random"
        draft.row(argument.place, f"--expander: {name[:60]}", Verdict.NO_EFFECT, "", text)
    return msgspec.structs.replace(argument, value=",".join(names[:end]))


def _list_items(flag: str, found: Sequence[Argument], draft: Draft) -> list[Argument]:
    items: list[Argument] = []
    for argument in found:
        if argument.value == "":
            draft.row(argument.place, argument.word, Verdict.NO_EFFECT, "", "an empty list")
        elif argument.value is not None and "," in argument.value and flag not in _SPLIT:
            draft.problem(
                _where(argument), f"{quote(argument.value)} is one name in Cluster Autoscaler", "give the flag twice"
            )
        else:
            items.append(argument)
    return items


def _keep(
    option: OptionDefinition, shown: Any, value: Any, found: Sequence[Argument], version: Version, draft: Draft
) -> None:
    path = f"spec.options.{option.name}"
    same = value == getattr(Options(), attribute(option))
    differed = any(row.option == option.name for row in release_defaults(version, frozenset()))
    if not same or differed:
        draft.options[option.name] = shown
    for argument in found:
        known = KNOWN.get(argument.flag)
        moved = known is not None and known.fate is Fate.RENAMED
        reason = known.reason if moved and known is not None else ""
        text = "; ".join(filter(None, (argument.read_as, reason, "the default" if same and not differed else "")))
        draft.row(argument.place, argument.word, Verdict.TRANSLATED if moved else Verdict.KEPT, path, text)


def _keep_for_later(option: OptionDefinition, shown: Any, found: Sequence[Argument], draft: Draft) -> None:
    default = _shown_default(option)
    same = shown == default
    if not same:
        draft.options[option.name] = shown
    for argument in found:
        verdict = Verdict.NO_EFFECT if same else Verdict.NOT_HERE
        text = "the default" if same else f"this version does not use it: {option.meaning}"
        draft.row(argument.place, argument.word, verdict, "" if same else f"spec.options.{option.name}", text)


def _shown_default(option: OptionDefinition) -> Any:
    text = default_text(option)
    try:
        return normalised(option, Argument("", "", option.flag, text))
    except BadInput:
        return text


# -- values ----------------------------------------------------------------------------------------------------------


def _read(option: OptionDefinition, found: Sequence[Argument]) -> Any:
    """Return the value that the policy's own reader makes of it."""
    first = found[0]
    report = Diagnostics(_where(first))
    nodes = tuple(
        diagnostics.Scalar(_plain_text(option, argument), plain=False, line=1, column=1) for argument in found
    )
    node: diagnostics.Node = nodes[0]
    if option.flag in _LISTS:
        node = diagnostics.Sequence(_split(option.flag, nodes), line=1, column=1, size=len(nodes))
    value = option.kind.read(node, (), report)
    report.check()
    if value is UNSET:
        raise BadInput(_where(first), "has no value that can be read", "")
    return value


def _split(flag: str, nodes: tuple[diagnostics.Scalar, ...]) -> tuple[diagnostics.Scalar, ...]:
    if flag not in _SPLIT:
        return nodes
    words = [word for node in nodes for word in node.text.split(",") if word]
    return tuple(diagnostics.Scalar(word, plain=False, line=1, column=1) for word in words)


def _plain_text(option: OptionDefinition, argument: Argument) -> str:
    kind = option.kind.name
    if kind == "true or false":
        return "true" if read_boolean(argument) else "false"
    if argument.value is None:
        raise BadInput(_where(argument), "has no value", f"write --{argument.flag}=VALUE")
    text = argument.value
    return _PLAIN[kind](text) if kind in _PLAIN else text


def _whole(text: str) -> str:
    found = _WHOLE.match(text) if len(text) <= _LONGEST_NUMBER else None
    if found is None:
        return text
    digits = found[2].replace("_", "").lower()
    base = {"0x": 16, "0b": 2, "0o": 8}.get(digits[:2], 8 if len(digits) > 1 and digits.startswith("0") else 10)
    try:
        number = int(digits[2:] if digits[:2] in ("0x", "0b", "0o") else digits, base)
    except ValueError:  # 08 is not a number in Go
        return text
    return str(-number if found[1] == "-" else number)


def _decimal(text: str) -> str:
    if len(text) > _LONGEST_NUMBER or not _DECIMAL.match(text):
        return text
    return f"{float(text):.12f}".rstrip("0").rstrip(".")


def _go_duration(text: str) -> str:
    return text.removeprefix("+")


_PLAIN: Mapping[str, Callable[[str], str]] = {"number": _whole, "decimal": _decimal, "duration": _go_duration}


def _where(argument: Argument) -> str:
    return f"{argument.place}: --{argument.flag}"


# -- the loop and checks across flags --------------------------------------------------------------------------------


def _scan_interval(found: Sequence[Argument], draft: Draft) -> None:
    if not found:
        draft.row(
            "",
            "no --scan-interval",
            Verdict.TOLD,
            "",
            "Cluster Autoscaler looked every 10s, Outscaler every 1m; scanInterval: 10s makes about six times the "
            "passes, the webhook reacts in seconds at the price of one",
        )
        return
    argument = _last(found, draft)
    try:
        seconds = parse_duration(argument.value or "")
    except (BadInput, ValueError):
        draft.problem(_where(argument), f"{quote(argument.value or '')} is not a duration", "write it like 10s")
        return
    if not SCAN_INTERVAL[0] <= seconds <= SCAN_INTERVAL[1]:
        draft.problem(_where(argument), f"{quote(argument.value or '')} is out of range", "write one from 5s to 1h")
        return
    draft.scan_interval = format_duration(seconds)
    draft.row(argument.place, argument.word, Verdict.TRANSLATED, "spec.scanInterval")


def _check_together(
    sources: Mapping[str, list[Argument]], in_force: dict[str, Any], version: Version, draft: Draft
) -> None:
    def where(flag: str) -> Argument:
        return sources[flag][-1]

    for flag in ("expander", "bypassed-scheduler-names", "gpu-total", "drain-priority-config"):
        if flag not in sources:
            continue
        report = Diagnostics(where(flag).place)
        name = attribute(FLAGS[flag])
        own = {key: in_force[key] for key in (name, "allowed_scheduler_names") if key in in_force}
        if name in own:
            check_options(OptionValues(own), ("spec", "options"), report)
        try:
            report.check()
        except InputErrors as error:
            draft.add(error)
    if in_force.get("balancing_label") and in_force.get("balancing_ignore_label"):
        argument = where("balancing-ignore-label")
        draft.row(argument.place, argument.word, Verdict.TOLD, "", "--balancing-label counts instead, as before")
    if in_force.get("drain_priority_config") and "max-graceful-termination-sec" in sources:
        default = Options().max_graceful_termination_sec
        if in_force.get("max_graceful_termination_sec", default) != default:
            argument = where("max-graceful-termination-sec")
            draft.problem(_where(argument), "is given together with --drain-priority-config", "keep one of the two")
    if "balancing-ignore-label" in sources and version is not None and version >= (1, 37):
        argument = where("balancing-ignore-label")
        text = "since 1.37 it had no effect with this provider; here it counts for every provider"
        draft.row(argument.place, argument.word, Verdict.TOLD, "spec.options.balancingIgnoreLabel", text)


def _write_release_defaults(
    sources: Mapping[str, list[Argument]], in_force: Mapping[str, Any], version: Version, draft: Draft
) -> None:
    skipped = bool(in_force.get("skip_nodes_with_system_pods", True))
    for row in release_defaults(version, frozenset(sources), system_pods_skipped=skipped):
        value = row.value
        if row.option == "scaleDownDelayAfterDelete" and draft.scan_interval:
            value = draft.scan_interval
        draft.options[row.option] = value
        shown = str(value).lower() if isinstance(value, bool) else value
        draft.row("", f"{row.option}: {shown}", Verdict.WRITTEN_OUT, f"spec.options.{row.option}", row.text)
    if "expander" not in sources and "expander" not in draft.options:
        text = _TIES.format("least-waste")
        draft.row("", "no --expander", Verdict.TOLD, "spec.options.expander", text)
    first = dict(sorted(draft.options.items(), key=lambda entry: order_of(entry[0])))
    draft.options.clear()
    draft.options.update(first)
