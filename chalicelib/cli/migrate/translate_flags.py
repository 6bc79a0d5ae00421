"""Translates flags of a command line to spec.options and spec.scanInterval.

Booleans and lists are read as Go reads them, and values are written as Outscaler's policy
writes them. Flags with their own place in the document (the provider's, the kubeconfig's) are
left to translate_providers.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from chalicelib.cli.migrate.autoscaler_input import Argument
from chalicelib.cli.migrate.flag_table import (
    KNOWN,
    MAX_EMPTY_BULK_DELETE,
    Fate,
    KnownFlag,
    Version,
    nearest,
    order_of,
    release_defaults,
)
from chalicelib.cli.migrate.report import Draft, Verdict
from chalicelib.cli.migrate.startup_taints import startup_taint_flag, unknown_startup_taints
from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.model.quantity import format_duration, parse_duration
from chalicelib.policy import diagnostics
from chalicelib.policy.diagnostics import Diagnostics, quote
from chalicelib.policy.option_tables import OptionDefinition, Status
from chalicelib.policy.options import FLAGS, OptionValues, attribute, check_options, default_text
from chalicelib.policy.settings.cluster_options import Options
from chalicelib.policy.value_types import UNSET

ArgumentsByFlag = Mapping[str, Sequence[Argument]]

SCAN_INTERVAL = (5.0, 3600.0)  # seconds
_BOOLEANS = dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), "true")
_BOOLEANS |= dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), "false")
# lists that are split at commas
_SPLIT = frozenset({"bypassed-scheduler-names", "allowed-scheduler-names"})
_LISTS = _SPLIT | {
    "gpu-total",
    "startup-taint",
    "startup-taint-prefix",
    "status-taint",
    "balancing-ignore-label",
    "balancing-label",
    "nodes",
    "node-group-auto-discovery",
}
# may leave several options
_TIED = frozenset({"most-pods", "least-waste", "least-nodes", "price", "priority"})
_TIES = "Cluster Autoscaler draws between equal groups, here the first id is taken; {},random draws"
_NEWER_FLAG_ALONE = (1, 25)  # the first release that does not read max-empty-bulk-delete


def group_arguments(arguments: Sequence[Argument]) -> dict[str, list[Argument]]:
    """Return the arguments by flag, in the order of the first of each."""
    by_flag: dict[str, list[Argument]] = {}
    for argument in arguments:
        by_flag.setdefault(argument.flag, []).append(argument)
    return by_flag


def translate_flags(
    arguments: Sequence[Argument], version: Version, draft: Draft, *, skip_unknown: bool
) -> None:
    """Write options, the scan interval and their rows into the draft. Mistakes go there, too."""
    by_flag = group_arguments(arguments)
    options: dict[str, list[Argument]] = {}  # by the flag that they are read as
    without_effect: dict[str, list[Argument]] = {}  # by reason
    for flag, own in by_flag.items():
        known = KNOWN.get(flag)
        if known is None:
            _report_unknown(own, draft, skip_unknown=skip_unknown)
        elif known.fate is Fate.NOTHING:
            without_effect.setdefault(known.reason, []).extend(own)
        elif known.fate is Fate.ALWAYS:
            _report_constant(known, _last(own, draft), draft)
        elif known.fate is Fate.RENAMED:
            _rename(known, own, by_flag, version, draft, options)
        elif known.fate is not Fate.PLACE:
            options.setdefault(flag, []).extend(own)
    in_force = _read_options(options, version, draft)
    for reason, own in without_effect.items():
        words = ", ".join(argument.word for argument in own)
        draft.row(own[0].place, words, Verdict.NO_EFFECT, "", reason)
    _read_scan_interval(by_flag.get("scan-interval", ()), draft)
    _check_together(options, in_force, version, draft)
    _write_release_defaults(options, in_force, version, draft)
    _report_startup_taints(by_flag, draft)


def _report_startup_taints(by_flag: ArgumentsByFlag, draft: Draft) -> None:
    """Report startup taints that Cluster Autoscaler does not know: it then buys a second time."""
    text = "always one here; Cluster Autoscaler buys again while its new nodes have this taint"
    for taint in unknown_startup_taints(by_flag):
        draft.row("", f"no {startup_taint_flag(taint)}", Verdict.TOLD, "", text)


def read_boolean(argument: Argument) -> bool:
    """Return a Go boolean; a flag without a value is true. Raises BadInput."""
    word = _BOOLEANS.get("true" if argument.value is None else argument.value)
    if word is None:
        raise BadInput(
            _where(argument),
            f"{quote(argument.value or '')} is not true or false",
            "write true or false",
        )
    return word == "true"


# -- flags that are no options ---------------------------------------------------------------------


def _report_unknown(arguments: Sequence[Argument], draft: Draft, *, skip_unknown: bool) -> None:
    near = nearest(arguments[0].flag)
    hint = f"did you mean --{near}?" if near else ""
    for argument in arguments:
        draft.row(argument.place, argument.word, Verdict.UNKNOWN, "", hint)
        if not skip_unknown:
            remedy = hint or "remove the flag, or give --skip-unknown"
            draft.problem(
                argument.place, f"--{argument.flag[:60]} is not a flag of any release", remedy
            )


def _report_constant(known: KnownFlag, argument: Argument, draft: Draft) -> None:
    try:
        value = read_boolean(argument)
    except BadInput as error:
        draft.add(error)
        return
    verdict = Verdict.NO_EFFECT if value else Verdict.TOLD
    draft.row(
        argument.place,
        argument.word,
        verdict,
        "",
        known.reason if value else "false has no effect here",
    )


def _rename(
    known: KnownFlag,
    arguments: list[Argument],
    by_flag: ArgumentsByFlag,
    version: Version,
    draft: Draft,
    options: dict[str, list[Argument]],
) -> None:
    """Add the arguments to those of the newer flag, unless that one is given or is
    the only one that is read."""
    if known.flag == MAX_EMPTY_BULK_DELETE and (version is None or version >= _NEWER_FLAG_ALONE):
        verdict, text = Verdict.NO_EFFECT, "releases since 1.25 use the newer flag"
    elif known.becomes in by_flag and known.becomes not in _LISTS:
        verdict, text = Verdict.TOLD, f"--{known.becomes} is given, which counts"
    else:
        options.setdefault(known.becomes, []).extend(arguments)
        return
    for argument in arguments:
        draft.row(argument.place, argument.word, verdict, "", text)


def _read_scan_interval(arguments: Sequence[Argument], draft: Draft) -> None:
    if not arguments:
        text = (
            "Cluster Autoscaler looked every 10s, Outscaler every 1m; scanInterval: 10s makes "
            "about six times the "
            "passes, the webhook reacts in seconds at the price of one"
        )
        draft.row("", "no --scan-interval", Verdict.TOLD, "", text)
        return
    argument = _last(arguments, draft)
    try:
        seconds = parse_duration(argument.value or "")
    except (BadInput, ValueError):
        draft.problem(
            _where(argument),
            f"{quote(argument.value or '')} is not a duration",
            "write it like 10s",
        )
        return
    if not SCAN_INTERVAL[0] <= seconds <= SCAN_INTERVAL[1]:
        draft.problem(
            _where(argument),
            f"{quote(argument.value or '')} is out of range",
            "write one from 5s to 1h",
        )
        return
    draft.scan_interval = format_duration(seconds)
    draft.row(argument.place, argument.word, Verdict.TRANSLATED, "spec.scanInterval")


# -- options ---------------------------------------------------------------------------------------


def _read_options(options: ArgumentsByFlag, version: Version, draft: Draft) -> dict[str, Any]:
    """Write options into the draft. Return the values in force by field of Options."""
    in_force: dict[str, Any] = {}
    for flag, arguments in options.items():
        option = FLAGS[flag]
        counting = (
            _list_items(flag, arguments, draft) if flag in _LISTS else [_last(arguments, draft)]
        )
        if flag == "expander":
            counting = [_expander_chain(counting[0], draft)]
        if not counting:
            continue
        if (
            option.status is not Status.IN_FORCE
            and counting[-1].value == default_text(option) == ""
        ):
            draft.row(counting[-1].place, counting[-1].word, Verdict.NO_EFFECT, "", "the default")
            continue
        try:
            value = _read(option, counting)
        except BadInput as error:
            draft.add(error)
            continue
        if option.status is Status.IN_FORCE:
            in_force[attribute(option)] = value
            _keep(option, value, counting, version, draft)
        else:
            _keep_for_later(option, option.kind.show(value), counting, draft)
    return in_force


def _last(arguments: Sequence[Argument], draft: Draft) -> Argument:
    """Return the last of several scalars, which counts. The others have a row."""
    for earlier in arguments[:-1]:
        draft.row(
            earlier.place, earlier.word, Verdict.TOLD, "", "given again later; the last one counts"
        )
    return arguments[-1]


def _expander_chain(argument: Argument, draft: Draft) -> Argument:
    """Return a chain of expanders without what follows `random`, and with a text on
    ties if it has no `random`."""
    names = [name.strip() for name in (argument.value or "").split(",")]
    if "random" not in names:
        tied = all(name in _TIED for name in names)
        return (
            msgspec.structs.replace(argument, read_as=_TIES.format(argument.value))
            if tied
            else argument
        )
    end = names.index("random") + 1
    for name in names[end:]:
        text = "nothing is left to choose after random"
        draft.row(argument.place, f"--expander: {name[:60]}", Verdict.NO_EFFECT, "", text)
    return msgspec.structs.replace(argument, value=",".join(names[:end]))


def _list_items(flag: str, arguments: Sequence[Argument], draft: Draft) -> list[Argument]:
    items: list[Argument] = []
    for argument in arguments:
        if argument.value == "":
            draft.row(argument.place, argument.word, Verdict.NO_EFFECT, "", "an empty list")
        elif argument.value is not None and "," in argument.value and flag not in _SPLIT:
            problem = f"{quote(argument.value)} is one name in Cluster Autoscaler"
            draft.problem(_where(argument), problem, "give the flag twice")
        else:
            items.append(argument)
    return items


def _keep(
    option: OptionDefinition,
    value: Any,
    arguments: Sequence[Argument],
    version: Version,
    draft: Draft,
) -> None:
    """Write an option in force, unless it has the default of Outscaler and of the release."""
    is_default = value == getattr(Options(), attribute(option))
    is_default &= not any(
        row.option == option.name for row in release_defaults(version, frozenset())
    )
    if not is_default:
        draft.options[option.name] = option.kind.show(value)
    for argument in arguments:
        known = KNOWN.get(argument.flag)
        renamed = known is not None and known.fate is Fate.RENAMED
        reason = known.reason if renamed and known is not None else ""
        text = "; ".join(
            filter(None, (argument.read_as, reason, "the default" if is_default else ""))
        )
        verdict = Verdict.TRANSLATED if renamed else Verdict.KEPT
        draft.row(argument.place, argument.word, verdict, f"spec.options.{option.name}", text)


def _keep_for_later(
    option: OptionDefinition, shown: Any, arguments: Sequence[Argument], draft: Draft
) -> None:
    """Write an option that this version does not use, unless it has the default. shown:
    the value in a document."""
    default: Any = default_text(option)
    with suppress(BadInput):  # of a default that is no value of a document
        default = option.kind.show(_read(option, (Argument("", "", option.flag, default),)))
    verdict, path, text = Verdict.NO_EFFECT, "", "the default"
    if shown != default:
        draft.options[option.name] = shown
        verdict, path = Verdict.NOT_HERE, f"spec.options.{option.name}"
        text = f"this version does not use it: {option.meaning}"
    for argument in arguments:
        draft.row(argument.place, argument.word, verdict, path, text)


def _read(option: OptionDefinition, arguments: Sequence[Argument]) -> Any:
    """Return the value that the policy's own reader makes of the arguments.
    Raises BadInput, InputErrors."""
    texts: list[str] = []
    for argument in arguments:
        if option.kind.name == "true or false":
            texts.append("true" if read_boolean(argument) else "false")
        elif argument.value is None:
            raise BadInput(_where(argument), "has no value", f"write --{argument.flag}=VALUE")
        elif option.flag in _SPLIT:
            texts += filter(None, argument.value.split(","))
        else:
            texts.append(argument.value)
    nodes = tuple(diagnostics.Scalar(text, plain=False, line=1, column=1) for text in texts)
    in_list = option.flag in _LISTS
    node = diagnostics.Sequence(nodes, line=1, column=1, size=len(nodes)) if in_list else nodes[0]
    report = Diagnostics(_where(arguments[0]))
    value = option.kind.read(node, (), report)
    report.check()
    if value is UNSET:
        raise BadInput(_where(arguments[0]), "has no value that can be read", "")
    return value


def _where(argument: Argument) -> str:
    return f"{argument.place}: --{argument.flag}"


# -- options that depend on each other, and on the release -----------------------------------------


def _check_together(
    options: ArgumentsByFlag, in_force: dict[str, Any], version: Version, draft: Draft
) -> None:
    for flag in ("expander", "bypassed-scheduler-names", "gpu-total", "drain-priority-config"):
        field = attribute(FLAGS[flag])
        if flag not in options or field not in in_force:
            continue
        report = Diagnostics(options[flag][-1].place)
        own = {key: in_force[key] for key in (field, "allowed_scheduler_names") if key in in_force}
        check_options(OptionValues(own), ("spec", "options"), report)
        try:
            report.check()
        except InputErrors as error:
            draft.add(error)
    if in_force.get("balancing_label") and in_force.get("balancing_ignore_label"):
        argument = options["balancing-ignore-label"][-1]
        draft.row(
            argument.place,
            argument.word,
            Verdict.TOLD,
            "",
            "--balancing-label counts instead, as before",
        )
    if in_force.get("drain_priority_config") and "max-graceful-termination-sec" in options:
        default = Options().max_graceful_termination_sec
        if in_force.get("max_graceful_termination_sec", default) != default:
            argument = options["max-graceful-termination-sec"][-1]
            draft.problem(
                _where(argument),
                "is given together with --drain-priority-config",
                "keep one of the two",
            )
    if "balancing-ignore-label" in options and version is not None and version >= (1, 37):
        argument = options["balancing-ignore-label"][-1]
        text = "since 1.37 it had no effect with this provider; here it counts for every provider"
        draft.row(
            argument.place, argument.word, Verdict.TOLD, "spec.options.balancingIgnoreLabel", text
        )


def _write_release_defaults(
    options: ArgumentsByFlag, in_force: Mapping[str, Any], version: Version, draft: Draft
) -> None:
    system_pods_skipped = bool(in_force.get("skip_nodes_with_system_pods", True))
    for row in release_defaults(
        version, frozenset(options), system_pods_skipped=system_pods_skipped
    ):
        value = row.value
        if row.option == "scaleDownDelayAfterDelete" and draft.scan_interval:
            value = draft.scan_interval
        draft.options[row.option] = value
        shown = str(value).lower() if isinstance(value, bool) else value
        draft.row(
            "",
            f"{row.option}: {shown}",
            Verdict.WRITTEN_OUT,
            f"spec.options.{row.option}",
            row.text,
        )
    if "expander" not in options and "expander" not in draft.options:
        text = _TIES.format("least-waste")
        draft.row("", "no --expander", Verdict.TOLD, "spec.options.expander", text)
    in_order = dict(sorted(draft.options.items(), key=lambda entry: order_of(entry[0])))
    draft.options.clear()
    draft.options.update(in_order)
