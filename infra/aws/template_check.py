"""`python -m infra.aws.template_check build/sam.json`: what CloudFormation would say, before it says it.

cfn-lint on the SAM template misses what only exists after the transformation (a concurrency under 2, a visibility
timeout shorter than the function's): so the template is translated as CloudFormation would, and the result is linted.
Nothing is asked of AWS. The code's place is not known yet and does not matter; a made-up one stands in.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REGION = "us-east-1"
REGIONS = (REGION, "eu-central-1", "eu-central-2", "ap-southeast-1", "cn-north-1", "us-gov-west-1")
"""Old and new ones, and one of each partition: what they offer differs."""

_CODE = "s3://outscaler-artifacts/deployment.zip"


class _ManagedPolicies:
    """The translator asks for AWS's managed policies; every role here is our own, so there are none."""

    def load(self) -> dict[str, str]:
        """None."""
        return {}


def translate(sam: dict[str, Any], region: str = REGION) -> dict[str, Any]:
    """The CloudFormation template that a SAM template stands for in a region; raises samtranslator's
    InvalidDocumentException."""
    os.environ.setdefault("AWS_DEFAULT_REGION", REGION)
    from samtranslator.translator.arn_generator import ArnGenerator
    from samtranslator.translator.transform import transform

    ArnGenerator.BOTO_SESSION_REGION_NAME = region

    with_code = copy.deepcopy(sam)
    for resource in with_code["Resources"].values():
        if resource["Type"] == "AWS::Serverless::Function":
            given = resource["Properties"]["CodeUri"]
            resource["Properties"]["CodeUri"] = given if given.startswith("s3://") else _CODE
    translated: dict[str, Any] = transform(with_code, {}, _ManagedPolicies())
    return translated


def lint(template: dict[str, Any], regions: Sequence[str] = REGIONS) -> list[str]:
    """What cfn-lint finds in a CloudFormation template for any of the regions: one line per finding, warnings too."""
    from cfnlint import lint_file
    from cfnlint.config import ManualArgs

    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "template.json"
        file.write_text(json.dumps(template))
        config = ManualArgs(regions=list(regions))
        matches = lint_file(file, config=config)
    return [f"{match.rule.id} {'/'.join(map(str, match.path or ()))}: {match.message}" for match in matches]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: findings on standard output, exit 1 if there are any."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.aws.template_check", description="translate and lint a SAM template"
    )
    parser.add_argument("template", type=Path, help="what infra.aws.package wrote: build/sam.json")
    findings = lint(translate(json.loads(parser.parse_args(arguments).template.read_text())))
    sys.stdout.write("".join(f"{finding}\n" for finding in findings))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
