"""spec.headroom: spare capacity, as virtual pods or as a percentage (docs/reference/headroom.md "Headroom")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chalicelib.model.errors import BadInput
from chalicelib.model.quantity import parse_amount
from chalicelib.policy.diagnostics import Diagnostics, Path, quote
from chalicelib.policy.list_sections import GROUPS, NAME, entries, percent
from chalicelib.policy.schedules import MOST_PERCENT
from chalicelib.policy.schema import Field, Section
from chalicelib.policy.value_types import ValueType, scalar, whole

_UNITS = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


def _size(resource: str, example: str, most: str) -> ValueType:
    """Parse a quantity above zero, no larger than any machine, so that its product with the number of pods still fits
    an integer."""
    limit = parse_amount(resource, most)
    span = f"an amount of up to {most}, such as {example}"

    def parse(value: str) -> int:
        try:
            amount = parse_amount(resource, value)
        except BadInput as error:
            raise BadInput("", error.problem, f"write {span}") from None
        if not 0 < amount <= limit:
            raise BadInput("", f"{quote(value)} is out of range", f"write {span}")
        return amount

    show: Callable[[int], str] = _show_cpu if resource == "cpu" else _show_bytes
    return ValueType("quantity", scalar(parse, span), show)


def _show_cpu(millicores: int) -> str:
    return f"{millicores}m" if millicores % 1000 else str(millicores // 1000)


def _show_bytes(amount: int) -> str:
    """Return the amount in the largest unit that represents it exactly."""
    unit, size = next(((unit, size) for unit, size in _UNITS if amount % size == 0), ("", 1))
    return f"{amount // size}{unit}"


HEADROOM = Section(
    fields=(
        Field("name", NAME, "name", "The headroom's name in answers.", required=True, example="name: NAME"),
        Field(
            "groups",
            GROUPS,
            "groups",
            "Ids or names of the groups, or of their pools, that hold it together; anywhere "
            "in the cluster if not given.",
        ),
        Field("pods", whole(1, 5000), "pods", "Number of virtual pods of this cpu and memory."),
        Field("cpu", _size("cpu", "500m", "1000"), "cpu", "Cpu of each of these."),
        Field("memory", _size("memory", "1Gi", "64Ti"), "memory", "Memory of each of these."),
        Field(
            "percent",
            percent(1, MOST_PERCENT),
            "percent",
            "Instead of pods: capacity as a percentage of the requests of the pods in scope.",
        ),
    )
)


def _one_measure(headroom: dict[str, Any], path: Path, diagnostics: Diagnostics) -> None:
    """Require either pods with a size, or percent."""
    broken = any(diagnostics.has_problem_under((*path, key)) for key in ("pods", "cpu", "memory", "percent"))
    sized = [key for key in ("pods", "cpu", "memory") if key in headroom]
    if "percent" in headroom and sized:
        diagnostics.problem(
            (*path, sized[0]), "the headroom is a percentage already", f"keep percent, or {', '.join(sized)}"
        )
    elif broken or not headroom or "percent" in headroom:
        return
    elif not sized:
        diagnostics.problem(path, "does not say how much", "add pods with cpu and memory, or percent")
    elif "pods" not in headroom:
        diagnostics.problem((*path, "pods"), "is missing", "add pods: 1, or how many of this size")
    elif len(sized) == 1:
        diagnostics.problem(path, "does not say how large a pod is", "add cpu: 500m, memory: 1Gi, or one of them")


HEADROOMS = entries(
    HEADROOM, "entry", 50, "{name: spare, groups: [ID], pods: 3, cpu: 500m, memory: 1Gi}", _one_measure, name="entries"
)
