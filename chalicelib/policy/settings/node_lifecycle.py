"""spec.nodeLifecycle: nodes that are old, drifted or sick (docs/reference/node-lifecycle.md)."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar

import msgspec

from chalicelib.policy.diagnostics import Diagnostics, Node, Path, quote
from chalicelib.policy.schema import Required, listed_sections, nested
from chalicelib.policy.settings.names_and_times import DAY, GROUPS, MONTH, GroupsOrAll
from chalicelib.policy.value_types import (
    BOOLEAN,
    UNSET,
    Form,
    ValueType,
    choice,
    distinct,
    duration,
    listed,
    member,
    percent,
    scalar_text,
    share_of,
    text,
    warn_of_no_value,
)


class DriftAction(StrEnum):
    """What happens to a node that its group would now create differently."""

    OFF = "off"
    REPORT = "report"
    REPLACE = "replace"


class RepairAction(StrEnum):
    """What happens to a sick node. A node that is sick again after its restart is replaced."""

    RESTART = "restart"
    REPLACE = "replace"


# -- spec.nodeLifecycle.repair ---------------------------------------------------------------------

_STATUSES = {
    "True": "True",
    "False": "False",
    "Unknown": "Unknown",
    "true": "True",
    "false": "False",
}
_STATUS = choice(("True", "False", "Unknown"))


def _read_status(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    # A condition's status is a text in Kubernetes; JSON and editors turn a
    # bare True into a boolean.
    return _STATUSES.get(scalar_text(node)) or _STATUS.read(node, path, diagnostics)


_STATUS_LIST = listed(
    ValueType("status", _read_status, form=lambda: {"enum": [True, False, *_STATUSES]}),
    name="list of statuses",
)


def _status_form() -> Form:
    return {"anyOf": [*_STATUS_LIST.form()["anyOf"], {"type": "boolean"}]}


_DISTINCT_STATUSES = distinct(
    _STATUS_LIST, "status", ("is an empty list", "take status out to mean True")
)


class RepairRule(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An entry of spec.nodeLifecycle.repair. after, flap_time: seconds."""

    document_order: ClassVar = ("condition", "status", "after", "flapTime", "action", "groups")

    condition: Annotated[
        str,
        text(
            "the type of a node's condition",
            r"(?!.{317})([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?"
            r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?",
            "something like Ready or KernelDeadlock",
        ),
        "Type of a condition of the Node, such as Ready or KernelDeadlock.",
        Required("condition: KernelDeadlock"),
    ]
    after: Annotated[
        float,
        duration(60.0, MONTH),
        "For so long, from 1m to 744h, before anything happens.",
        Required("after: 10m"),
    ]
    status: Annotated[
        tuple[str, ...],
        msgspec.structs.replace(_DISTINCT_STATUSES, form=_status_form),
        "The node is sick while the condition has one of these: True, False, Unknown.",
    ] = ("True",)
    flap_time: Annotated[
        float,
        duration(0.0, DAY),
        "A shorter time without the condition, up to 24h, does not begin that anew.",
    ] = 60.0
    action: Annotated[
        RepairAction,
        member(RepairAction),
        "restart: drained and restarted once, replaced if it is sick again. replace: another node "
        "takes its place.",
    ] = RepairAction.REPLACE
    groups: GroupsOrAll = ()


_SOUND = {
    "Ready": "True",
    "MemoryPressure": "False",
    "DiskPressure": "False",
    "PIDPressure": "False",
    "NetworkUnavailable": "False",
}
"""The kubelet's conditions, as they are on a sound node."""


def _sick_by(rule: dict[str, Any], path: Path, diagnostics: Diagnostics) -> None:
    """Refuse a rule by which every sound node is sick; warn of a flap that is
    longer than the illness."""
    usual = RepairRule("", 0.0)
    sound = _SOUND.get(rule.get("condition", ""))
    if sound in rule.get("status", usual.status) and not diagnostics.has_problem_under(
        (*path, "status")
    ):
        diagnostics.problem(
            (*path, "status") if "status" in rule else (*path, "condition"),
            f"makes every node sick: {rule['condition']} is {sound} on a sound one",
            f"write status: [{'False' if sound == 'True' else 'True'}, Unknown]",
        )
    if "after" in rule and rule.get("flap_time", usual.flap_time) > rule["after"]:
        diagnostics.warn(
            (*path, "flapTime"),
            "is longer than after, so a node may be repaired whose condition is long over",
        )


_REPAIRS = listed_sections(
    RepairRule,
    "rule",
    50,
    "{condition: Ready, status: [False, Unknown], after: 30m}",
    _sick_by,
)

# -- spec.nodeLifecycle ----------------------------------------------------------------------------

_LEAST_AGE = 3600.0
_LIFETIME = duration(example="720h")


def _read_age(node: Node, path: Path, diagnostics: Diagnostics) -> Any:
    age = _LIFETIME.read(node, path, diagnostics)
    if age is not UNSET and age < _LEAST_AGE:
        diagnostics.problem(path, "is shorter than 1h", "write at least 1h")
        return UNSET
    return age


class NodeLifecycle(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """spec.nodeLifecycle. Durations are seconds. max_node_age: None: nodes may grow old. jitter:
    the largest share of max_node_age by which a node goes earlier. annotations: whether
    karpenter.sh/do-not-disrupt holds expired and drifted nodes; it never holds a repair."""

    max_node_age: Annotated[
        float | None,
        msgspec.structs.replace(_LIFETIME, read=_read_age),
        "Older nodes are replaced, from 1h; never if not given.",
    ] = None
    groups: Annotated[
        tuple[str, ...],
        GROUPS,
        "Ids or names of the groups, or of their pools, to which age and drift apply; all groups "
        "if not given.",
    ] = ()
    jitter: Annotated[
        float,
        share_of(percent(0, 50)),
        "Part of maxNodeAge, from 0% to 50%, by which nodes go earlier, each by its own amount.",
    ] = 0.1
    expiry_grace: Annotated[
        float,
        duration(),
        "A node that is so much older than maxNodeAge is reported as overdue; nothing is forced.",
    ] = 3 * DAY
    drift: Annotated[
        DriftAction,
        member(DriftAction),
        "What happens to nodes that are not as their group is defined now.",
    ] = DriftAction.REPORT
    repair: Annotated[
        tuple[RepairRule, ...],
        _REPAIRS,
        "Which conditions make a node sick, and what is done then; nothing if not given.",
    ] = ()
    max_unhealthy: Annotated[
        float,
        share_of(percent(0, 100)),
        "A group of which a larger part is sick, but more than one node, is not repaired.",
    ] = 0.2
    annotations: Annotated[
        bool,
        BOOLEAN,
        "The annotation karpenter.sh/do-not-disrupt of pods and nodes holds expired and drifted "
        "nodes. It never holds a repair.",
    ] = True


def _has_effect(values: dict[str, Any], path: Path, diagnostics: Diagnostics) -> None:
    """Warn of settings that belong to something that is not asked for."""
    ages, repairs = "max_node_age" in values, bool(values.get("repair"))
    drift = values.get("drift", NodeLifecycle().drift)
    age_rule, never = (
        "has no effect without maxNodeAge",
        "has no effect: nodes have no maxNodeAge, and drift is",
    )
    for attribute, key, in_force, text_of_warning in (
        ("jitter", "jitter", ages, age_rule),
        ("expiry_grace", "expiryGrace", ages, age_rule),
        ("max_unhealthy", "maxUnhealthy", repairs, "has no effect without repair"),
        ("groups", "groups", ages or drift is not DriftAction.OFF, f"{never} off"),
        ("annotations", "annotations", ages or drift is DriftAction.REPLACE, f"{never} {drift}"),
    ):
        if attribute in values and not in_force and not diagnostics.has_problem_under(path):
            diagnostics.warn((*path, key), text_of_warning)


def _repairs_differ(values: dict[str, Any], path: Path, diagnostics: Diagnostics) -> None:
    """Refuse two rules about the same: which of them counts would depend on their order."""
    first: set[tuple[str, frozenset[str], frozenset[str]]] = set()
    for index, rule in enumerate(values.get("repair", ())):
        below: Path = (*path, "repair", index)
        if "condition" not in rule or diagnostics.has_problem_under(below):
            continue
        status = rule.get("status", RepairRule("", 0.0).status)
        subject = (rule["condition"], frozenset(status), frozenset(rule.get("groups", ())))
        if subject in first:
            problem = f"says twice what happens to condition {quote(rule['condition'])}"
            diagnostics.problem((*below, "condition"), problem, "keep one")
        first.add(subject)


NODE_LIFECYCLE = warn_of_no_value(
    nested(NodeLifecycle, _repairs_differ, _has_effect),
    "nodes that are not as their group is defined now are reported",
)
