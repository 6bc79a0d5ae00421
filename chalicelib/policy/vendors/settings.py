"""How a vendor's settings are declared, and how the texts that a policy keeps become the
value that its provider uses.

Its fields are declared like every setting (policy/schema.py). policy/providers.py reads documents
by these fields, with lines. `typed` reads the texts of a stored policy by the same checks, because
a provider is also built without a document that was just read. Rules about several settings at once
are functions beside the struct, because only the provider knows the groups, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import msgspec

from chalicelib.model.errors import BadInput, InputErrors
from chalicelib.model.resources import CPU, EPHEMERAL, MEMORY
from chalicelib.policy.schema import Field, fields_of
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.policy.value_types import SECRET, amount

B = TypeVar("B")
S = TypeVar("S", bound="VendorSettings")

ReservedCpu = Annotated[
    int | None,
    amount(CPU, "200m"),
    "What the kubelet of a new node keeps back of its cpu; learnt from real nodes otherwise.",
]
ReservedMemory = Annotated[int | None, amount(MEMORY, "500Mi"), "The same for memory."]
ReservedEphemeralStorage = Annotated[
    int | None, amount(EPHEMERAL, "1Gi"), "The same for ephemeral storage."
]
ObserveSecret = Annotated[
    str,
    SECRET,
    (
        "The same with keys that may only read: what passes look with; changes are made with "
        "credentialsSecret."
    ),
]
UUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"


class VendorSettings(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """spec.providers.<vendor>. group_id: the pattern of its groups' ids, where they have one.
    states_prices: it states what a node of its groups costs, so that the document need not.
    may_state_prices: it does, or it does where its key and its pools allow that. spot: it has
    groups of spot nodes; states_spot_prices: and says what they cost; spot_notice: seconds from its
    announcement until it takes a node back, 0.0 where that is not known. restarts: it can restart a
    node."""

    vendor: ClassVar[str]
    group_example: ClassVar[str]
    group_id: ClassVar[str] = ""
    states_prices: ClassVar[bool] = False
    may_state_prices: ClassVar[bool] = True
    spot: ClassVar[bool] = True
    states_spot_prices: ClassVar[bool] = False
    spot_notice: ClassVar[float] = 0.0
    restarts: ClassVar[bool] = True

    @classmethod
    def prices_with(cls, settings: Mapping[str, str]) -> bool:
        """Whether the vendor states prices under these texts of a policy."""
        switch = next(
            (
                field.encode_name
                for field in msgspec.structs.fields(cls)
                if field.name == "read_prices"
            ),
            "",
        )
        return cls.states_prices and settings.get(switch, "true") != "false"

    @property
    def reserve(self) -> dict[str, int]:
        """Resource -> amount that a new node's kubelet keeps back (cpu in millicores, the rest in
        bytes), as far as the settings say."""
        attributes = {
            CPU: "reserved_cpu",
            MEMORY: "reserved_memory",
            EPHEMERAL: "reserved_ephemeral_storage",
        }
        amounts = {
            resource: getattr(self, attribute, None) for resource, attribute in attributes.items()
        }
        return {resource: value for resource, value in amounts.items() if value is not None}


@cache
def settings_of(struct: type[VendorSettings]) -> tuple[Field, ...]:
    """Return the keys of a vendor, in the order of its page."""
    return tuple(
        msgspec.structs.replace(field, example=f"{field.key}: outscaler/prod/{struct.vendor}")
        if field.kind is SECRET
        else field
        for field in fields_of(struct)
    )


def keys_of(struct: type[VendorSettings]) -> frozenset[str]:
    """Return the keys of a vendor."""
    return frozenset(setting.key for setting in settings_of(struct))


class GroupForm(msgspec.Struct, Generic[B], frozen=True):
    """How a provider names its groups.

    of_spec: (min, max, name) of a line of `nodes` -> bounds. of_entry: an entry of nodeGroups ->
    bounds. name: of bounds. noun: for errors about duplicates ("each pool"). none: problem and
    remedy of a policy without groups; None if the provider discovers them.
    """

    of_spec: Callable[[int, int, str], B]
    of_entry: Callable[[GroupPolicy], B]
    name: Callable[[B], str]
    noun: str
    none: tuple[str, str] | None = None


def typed(
    struct: type[S],
    texts: Mapping[str, str],
    rules: Iterable[Callable[[Mapping[str, Any]], object]] = (),
    groups: GroupForm[Any] | None = None,
    entries: Iterable[GroupPolicy] = (),
) -> S:
    """Return a vendor's settings from the texts of a policy (key -> text; blanks
    around a value are ignored).

    rules: each gets attribute -> value of the settings that are given (its text, if it could not be
    read), and raises BadInput. groups: how `groups` is made of `nodes` and of the policy's entries;
    each group is named in one of the two. Raises BadInput, or InputErrors for several mistakes,
    with places such as `providers.exoscale.zone`.
    """
    place = f"providers.{struct.vendor}"
    mistakes: list[BadInput] = []
    values: dict[str, Any] = {}
    for setting in settings_of(struct):
        text = texts.get(setting.key, "")
        if not text.strip():
            if setting.required:
                mistakes.append(BadInput(f"{place}.{setting.key}", *setting.missing))
            continue
        # Text of several lines stays as it is, because mistakes in it are reported by line.
        text = text if "\n" in text.strip() else text.strip()
        value = _collect(mistakes, f"{place}.{setting.key}", setting.kind.parse or str, text)
        values[setting.attribute] = text if value is None else value
    for rule in rules:
        _collect(mistakes, "", rule, values)
    if groups is not None:
        values["groups"] = _named_groups(
            struct.vendor, values.get("nodes", ()), entries, groups, mistakes
        )
    keys = keys_of(struct)
    for key in texts:
        if key not in keys:
            remedy = f"the settings are {', '.join(sorted(keys))}"
            mistakes.append(BadInput(f"{place}.{key}", "there is no such setting", remedy))
    if mistakes:
        raise mistakes[0] if len(mistakes) == 1 else InputErrors(tuple(mistakes))
    return struct(**values)


def _collect(
    mistakes: list[BadInput], place: str, call: Callable[..., B], *arguments: Any
) -> B | None:
    """Return what the call returns, or None and collect the BadInput that it raises. place: of its
    mistakes; empty if they have their own."""
    try:
        return call(*arguments)
    except BadInput as error:
        problems = error.problems if isinstance(error, InputErrors) else (error,)
        mistakes += [
            BadInput(place or mistake.place, mistake.problem, mistake.remedy)
            for mistake in problems
        ]
        return None


def _named_groups(
    vendor: str,
    specs: tuple[tuple[int, int, str], ...] | str,
    entries: Iterable[GroupPolicy],
    form: GroupForm[B],
    mistakes: list[BadInput],
) -> tuple[B, ...]:
    """Return the bounds of each group. specs: the text of `nodes`, if it could not be read."""
    nodes = f"providers.{vendor}.nodes"
    rows: list[tuple[str, B | None]] = [
        (nodes, form.of_spec(*spec)) for spec in specs if isinstance(spec, tuple)
    ]
    rows += [
        (f"nodeGroups: {entry.id}", _collect(mistakes, "", form.of_entry, entry))
        for entry in entries
        if entry.provider == vendor
    ]
    named: dict[str, B] = {}
    for place, bounds in rows:
        if bounds is not None and form.name(bounds) in named:
            problem = f"{form.name(bounds)} is given twice"
            mistakes.append(BadInput(place, problem, f"name {form.noun} once"))
        elif bounds is not None:
            named[form.name(bounds)] = bounds
    if (
        not rows
        and form.none is not None
        and not any(mistake.place == nodes for mistake in mistakes)
    ):
        mistakes.append(BadInput(nodes, *form.none))
    return tuple(named.values())


def entry_bounds(group_policy: GroupPolicy) -> tuple[int, int]:
    """Return min and max of an entry of nodeGroups, for a provider without a default
    for max. Raises BadInput."""
    place = f"nodeGroups: {group_policy.id}"
    if group_policy.max is None:
        raise BadInput(
            place,
            "has no max",
            f"add max: the provider {group_policy.provider} has no default for it",
        )
    least = group_policy.min or 0
    check_order(place, least, group_policy.max)
    return least, group_policy.max


def check_order(place: str, least: int | None, most: int | None) -> None:
    """Raise BadInput if a bound is negative or a maximum is below its minimum. None: not given."""
    if (least or 0) < 0 or (most or 0) < 0:
        raise BadInput(place, "has a negative size", "write 0 or more")
    if least is not None and most is not None and most < least:
        raise BadInput(
            place, f"max {most} is below min {least}", f"write {least} or more, or lower min"
        )
