"""CloudFormation's way in: templates that lie in S3, and templates of SAM, as `aws cloudformation deploy` sends them.

moto finds a template under an address of AWS or of `localhost` only. It does not know the SAM transformation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import yaml
from moto.cloudformation import responses
from moto.cloudformation.models import CloudFormationBackend

_SAM = "AWS::Serverless-2016-10-31"
_BODIES = ("create_stack", "create_change_set", "update_stack")


class _NoManagedPolicies:
    """Every role here has policies of its own."""

    def load(self) -> dict[str, str]:
        """None."""
        return {}


def transformed(body: str) -> str:
    """The template as CloudFormation carries it out."""
    if _SAM not in body:
        return body
    template: dict[str, Any] = yaml.safe_load(body)     # JSON is YAML
    if template.get("Transform") != _SAM:
        return body
    from samtranslator.translator.transform import transform

    made: Mapping[str, Any] = transform(template, {}, _NoManagedPolicies())
    return json.dumps(made)


def install() -> None:
    """Replace moto's behaviour."""
    find = responses.get_stack_from_s3_url

    def get_stack_from_s3_url(template_url: str, account_id: str, partition: str) -> Any:
        parts = urlsplit(template_url)
        if not parts.netloc.endswith("amazonaws.com"):      # an emulation's: the bucket is in the path
            template_url = f"https://s3.amazonaws.com{parts.path}"
        return find(template_url, account_id, partition)

    responses.get_stack_from_s3_url = get_stack_from_s3_url
    for name in _BODIES:
        setattr(CloudFormationBackend, name, _with_template(getattr(CloudFormationBackend, name)))


def _with_template(method: Any) -> Any:
    def changed(self: Any, *arguments: Any, **named: Any) -> Any:
        if named.get("template"):
            named["template"] = transformed(named["template"])
        return method(self, *arguments, **named)

    return changed
