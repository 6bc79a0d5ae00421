"""`python -m infra.aws.template_check build/sam.json`: finds template errors
before CloudFormation does.

cfn-lint on the SAM template misses errors that appear only after the transformation (a concurrency
below 2, a visibility timeout shorter than the function's timeout). Therefore the template is
translated as CloudFormation would translate it, and the result is linted. AWS is not called. The
location of the code is not known yet and does not matter, so a placeholder is used.
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
"""Old and new regions, and one of each partition, because they offer different features."""

_CODE = "s3://outscaler-artifacts/deployment.zip"


class _ManagedPolicies:
    """Replaces the loader of AWS's managed policies, which the translator asks for. No role
    here uses a managed policy."""

    def load(self) -> dict[str, str]:
        """Return no policies."""
        return {}


def translate(sam: dict[str, Any], region: str = REGION) -> dict[str, Any]:
    """Return the CloudFormation template that a SAM template is transformed to in a region. Raises
    samtranslator's InvalidDocumentException."""
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
    """Return the findings of cfn-lint, warnings included, for a CloudFormation template in any of
    the regions, one line per finding."""
    from cfnlint import lint_file
    from cfnlint.config import ManualArgs

    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "template.json"
        file.write_text(json.dumps(template))
        config = ManualArgs(regions=list(regions))
        matches = lint_file(file, config=config)
    return [
        f"{match.rule.id} {'/'.join(map(str, match.path or ()))}: {match.message}"
        for match in matches
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: print the findings to standard output and exit with 1 if there are any."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.aws.template_check", description="translate and lint a SAM template"
    )
    parser.add_argument("template", type=Path, help="what infra.aws.package wrote: build/sam.json")
    findings = lint(translate(json.loads(parser.parse_args(arguments).template.read_text())))
    sys.stdout.write("".join(f"{finding}\n" for finding in findings))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
