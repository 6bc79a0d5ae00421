"""spec.headroom: spare capacity that is kept free (docs/reference/headroom.md "Headroom")."""

from typing import Annotated, Any

import msgspec

from chalicelib.model.errors import BadInput
from chalicelib.model.quantity import parse_amount
from chalicelib.policy.diagnostics import Diagnostics, Path, quote
from chalicelib.policy.schema import Required, listed_sections
from chalicelib.policy.settings.names_and_times import GROUPS, NAME
from chalicelib.policy.value_types import ValueType, percent, scalar, whole

MOST_PERCENT = 1000
_PERCENT = percent(1, MOST_PERCENT)


def _size(resource: str, example: str, most: str) -> ValueType:
    """A quantity above zero, no larger than any machine, so that its product with the number of
    pods still fits an integer."""
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

    return scalar("quantity", parse, span, lambda amount: _show_amount(resource, amount))


def _show_amount(resource: str, amount: int) -> str:
    """Return millicores or bytes in the largest unit that represents them exactly."""
    if resource == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    units = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10), ("", 1))
    unit, size = next((unit, size) for unit, size in units if amount % size == 0)
    return f"{amount // size}{unit}"


class Headroom(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Spare capacity: either pods > 0 with cpu (millicores) and memory (bytes) each, or percent > 0
    of the requests of the pods in scope."""

    name: Annotated[str, NAME, "The headroom's name in answers.", Required("name: NAME")]
    groups: Annotated[
        tuple[str, ...],
        GROUPS,
        "Ids or names of the groups, or of their pools, that hold it together; anywhere in the "
        "cluster if not given.",
    ] = ()
    pods: Annotated[int, whole(1, 5000), "Number of virtual pods of this cpu and memory."] = 0
    cpu: Annotated[int, _size("cpu", "500m", "1000"), "Cpu of each of these."] = 0
    memory: Annotated[int, _size("memory", "1Gi", "64Ti"), "Memory of each of these."] = 0
    percent: Annotated[
        int,
        _PERCENT,
        "Instead of pods: capacity as a percentage of the requests of the pods in scope.",
    ] = 0


def _one_measure(headroom: dict[str, Any], path: Path, diagnostics: Diagnostics) -> None:
    """Require either pods with a size, or percent."""
    reported = any(
        diagnostics.has_problem_under((*path, key)) for key in ("pods", "cpu", "memory", "percent")
    )
    sized = [key for key in ("pods", "cpu", "memory") if key in headroom]
    if "percent" in headroom and sized:
        diagnostics.problem(
            (*path, sized[0]),
            "the headroom is a percentage already",
            f"keep percent, or {', '.join(sized)}",
        )
    elif reported or not headroom or "percent" in headroom:
        return
    elif not sized:
        diagnostics.problem(
            path, "does not say how much", "add pods with cpu and memory, or percent"
        )
    elif "pods" not in headroom:
        diagnostics.problem((*path, "pods"), "is missing", "add pods: 1, or how many of this size")
    elif len(sized) == 1:
        diagnostics.problem(
            path, "does not say how large a pod is", "add cpu: 500m, memory: 1Gi, or one of them"
        )


HEADROOMS = listed_sections(
    Headroom,
    "entry",
    50,
    "{name: spare, groups: [ID], pods: 3, cpu: 500m, memory: 1Gi}",
    _one_measure,
    name="entries",
)
