"""Converts HorizontalNodeAutoscaler objects into rules of a policy. An object with a mistake is never imported
partially."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from chalicelib.command.importers.input_files import InputFile
from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.model.scaling_rules import Rule, RuleObject
from chalicelib.policy.horizontal_node_autoscaler import read_object

_LONGEST_NAME = 100


def read_rules(sources: Sequence[InputFile], time_zone: str) -> tuple[tuple[Rule, ...], tuple[str, ...]]:
    """Return (rules, warnings). time_zone: of their cron expressions; the objects do not contain one.

    Raises InputErrors with every mistake of every object, each with the file and the object's name.
    """
    problems: list[BadInput] = []
    reported: list[str] = []
    rules: dict[str, Rule] = {}
    seen: set[str] = set()
    for source in sources:
        found = read_object(source.content)
        where = f"{source.place}: {found.key}" if found.name else source.place
        problems += [BadInput(where, problem) for problem in found.problems]
        if found.name and found.key in seen:
            problems.append(BadInput(where, "is given twice", "give each object once"))
        seen.add(found.key)
        reported += [f"{where}: {warning}" for warning in found.warnings]
        if found.disabled:
            reported.append(f"{where}: is disabled, so that its rules are not carried over")
        elif not found.problems:
            _add(found, where, time_zone, rules, reported)
    if problems:
        raise InputErrors(tuple(problems))
    return tuple(rules.values()), tuple(reported)


def _add(found: RuleObject, where: str, time_zone: str, rules: dict[str, Rule], reported: list[str]) -> None:
    for rule in found.rules:
        if not rule.groups:
            reported.append(f"{where}: rule {rule.name}: has no target and is not carried over")
            continue
        name = _name(rule.name, found.name, rules)
        if name != rule.name:
            reported.append(
                f"{where}: rule {rule.name}: is called {name} in the policy, where names are unique and have "
                "no spaces and slashes"
            )
        zone = time_zone if rule.cron else "UTC"
        rules[name] = msgspec.structs.replace(rule, name=name, time_zone=zone, source="")


def _name(wanted: str, owner: str, taken: dict[str, Rule]) -> str:
    """Return the rule's own name if it is valid; otherwise prefixed with its object's name and followed by a number."""
    plain = re.sub(r"[\s/\x00-\x1f\x7f]+", "-", wanted)[:_LONGEST_NAME]
    if plain not in taken:
        return plain
    longer = re.sub(r"[\s/\x00-\x1f\x7f]+", "-", f"{owner}.{plain}")[: _LONGEST_NAME - 4]
    return next(
        name for number in range(1, 10_000) if (name := longer if number == 1 else f"{longer}-{number}") not in taken
    )
