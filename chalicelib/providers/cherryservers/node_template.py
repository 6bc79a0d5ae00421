"""Builds the template of the node that a pool would add, from its plan.

Labels are those that the vendor's cloud controller sets on real nodes: plan and region by their
slugs, no zone. Upstream uses the plan's name, which may contain blanks; a pod that selects by slug
then never scales a pool up from zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from chalicelib.model.resources import CPU, EPHEMERAL, MEMORY, PODS
from chalicelib.providers.cherryservers.decoding import AvailableRegion, CherryPlan
from chalicelib.providers.cherryservers.pool_definition import Definition
from chalicelib.providers.kit.errors import OutOfStock
from chalicelib.providers.kit.node_template import (
    ARCH,
    BETA_INSTANCE_TYPE,
    GPU,
    INSTANCE_TYPE,
    OS,
    REGION,
    USUAL_PODS,
    GroupTemplate,
    template_node,
)
from chalicelib.providers.kit.price_reader import currency_code, price_of

POOL_LABEL = "pool"
_BYTES = MappingProxyType({"KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40})


def make_template(
    definition: Definition, plan: CherryPlan | None, reserve: Mapping[str, int]
) -> GroupTemplate:
    """Return the template of a pool. plan: None if the vendor has none of that slug; reserve:
    reserved by the kubelet, cpu in millicores and the rest in bytes."""
    if plan is None:
        return GroupTemplate(
            None, f"plan {definition.plan!r} is not supported: the vendor has no plan of that slug"
        )
    name = plan.slug or definition.plan
    cores = definition.cpu_override or plan.specs.cpus.cores
    memory = amount_of(plan.specs.memory.total, plan.specs.memory.unit)
    problem = ""
    if cores <= 0:  # of the whole server, not per processor and not multiplied by threads
        problem = f"plan {name} does not say how many cores it has; set cpu-override for this pool"
    elif memory is None:
        unit = plan.specs.memory.unit
        problem = (
            f"plan {name} gives its memory in {unit!r}, which is not one of {', '.join(_BYTES)}"
        )
    elif memory == 0:
        problem = f"plan {name} does not say how much memory it has"
    if problem:
        return GroupTemplate(None, problem)
    disk, warning = _disk(definition, plan)
    capacity = {
        CPU: 1000 * cores,
        MEMORY: memory or 0,
        PODS: USUAL_PODS,
        GPU: 0,
        **({EPHEMERAL: disk} if disk else {}),
    }
    sold = region_of(plan, definition.region)
    labels = {
        POOL_LABEL: definition.pool,
        **dict.fromkeys((INSTANCE_TYPE, BETA_INSTANCE_TYPE), name),
        REGION: (sold.slug if sold else "") or definition.region,
        ARCH: "amd64",
        OS: "linux",
    }
    node = template_node(f"{definition.pool}-asg-0", labels, capacity, reserve)
    return GroupTemplate(node, "", (warning,) if warning else ())


def _disk(definition: Definition, plan: CherryPlan) -> tuple[int, str]:
    """Return bytes, 0 if unknown, and a warning. One disk of the first kind counts, because how
    several are combined is unknown, and mirrored ones hold no more than one."""
    if definition.os_partition_size:
        return _BYTES["GB"] * definition.os_partition_size, ""
    row = next(iter(plan.specs.storage), None)
    disk = amount_of(row.size, row.unit) if row is not None else None
    unknown = (
        f"plan {plan.slug or definition.plan} does not say how large its disk is; set "
        "os-partition-size for "
        "pods that ask for ephemeral storage"
    )
    return (disk, "") if disk else (0, unknown)


def amount_of(number: float, unit: str) -> int | None:
    """Return bytes; None for an unknown unit."""
    size = _BYTES.get(unit.strip().upper())
    return None if size is None else max(0, int(number * size))


# -- plans

_CURRENCY = "EUR"  # the vendor's currency, used if a plan has prices in several


def region_of(plan: CherryPlan, region: str) -> AvailableRegion | None:
    """Return the plan's entry for a region, matched by slug, then name or id; None if
    the plan is not sold there."""
    rows = plan.available_regions
    for keys in (lambda row: (row.slug,), lambda row: (row.name, str(row.id))):
        for row in rows:
            if region in keys(row):
                return row
    return None


def stock_of(plan: CherryPlan, region: str, *, spot: bool = False) -> int:
    """Return the stock in the region, or that of its spot market. Raises OutOfStock naming the
    plan's regions if it is not sold in this one."""
    row = region_of(plan, region)
    if row is None:
        sold = (
            ", ".join(each.slug or each.name for each in plan.available_regions[:10]) or "no region"
        )
        text = f"plan {plan.slug or plan.id} is not sold in region {region!r}; it is sold in {sold}"
        raise OutOfStock(text, code="Region")
    return max(0, row.spot_qty if spot else row.stock_qty)


def price_unit(*, spot: bool) -> str:
    """Return the vendor's name of an hourly price, in lower case."""
    return "spot hourly" if spot else "hourly"


def hourly(plan: CherryPlan, *, spot: bool = False) -> tuple[float, str] | None:
    """Return the price of one server per hour and its currency, "" if the plan states none that can
    be one; None if the plan has no price. The price is in the vendor's currency and, if both are
    listed, without value added tax, because prices are only compared between groups. A spot price
    is a separate entry. The ordinary price does not replace it, and a monthly price does not
    replace an hourly one."""
    rows = [
        row
        for row in plan.pricing
        if row.unit.strip().casefold() == price_unit(spot=spot) and price_of(row.price)
    ]
    order = [
        (row.currency.upper() != _CURRENCY, row.taxed, row.price, currency_code(row.currency))
        for row in rows
    ]
    return (min(order)[2], min(order)[3]) if order else None
