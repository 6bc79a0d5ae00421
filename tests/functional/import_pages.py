"""The examples of the five vendors' own pages, cut out of the reference data."""

from __future__ import annotations

import re

from tests.reference_data import SHARED

_SEEDS = SHARED / "seeds"
_DEPLOYMENT = re.compile(
    r"^apiVersion: apps/v1\nkind: Deployment\n(?:[ \n].*\n|[a-z]+:.*\n)*", re.MULTILINE
)
_SECRET = re.compile(r"^apiVersion: v1\nkind: Secret\n(?:[ \n].*\n|[a-z]+:.*\n)*", re.MULTILINE)
_COMMAND = re.compile(r"^cluster-autoscaler --(?:.*\\[ ]*\n)*.*$", re.MULTILINE)
_RULES = re.compile(
    r"^apiversion: autoscaling\.cce\.io/.*\n(?:[ -].*\n|[a-z]+:.*\n)*", re.MULTILINE
)


def page(number: int) -> str:
    """Return one page, from 1."""
    (path,) = _SEEDS.glob(f"{number - 1:03d}_*.txt")
    return path.read_text(encoding="utf-8")


def deployments() -> list[str]:
    """Return the two Deployments of Alibaba Cloud's page: with keys, and
    with the role of the node."""
    return _matches(_DEPLOYMENT, page(1))


def secret() -> str:
    """Return the Secret of Alibaba Cloud's page, with placeholders."""
    return _matches(_SECRET, page(1))[0]


def commands(number: int) -> list[str]:
    """Return the command lines of a page."""
    return _matches(_COMMAND, page(number))


def scaling_rules() -> str:
    """Return the HorizontalNodeAutoscaler of Huawei Cloud's page."""
    return _matches(_RULES, page(5))[0]


def _matches(pattern: re.Pattern[str], text: str) -> list[str]:
    return [found[0] for found in pattern.finditer(text)]
