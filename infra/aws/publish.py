"""`python -m infra.aws.publish build/sam.json --out build/published.json`: writes a
template without a transform.

`chalice package` makes a SAM template for one processor that does not know the location of the zip.
Terraform or a pipeline needs a template that is in a bucket with the zip and takes everything else
as parameters. SAM's transform is done here, so CloudFormation requires only CAPABILITY_IAM.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from infra.aws.template_check import translate
from infra.tools.interruptible import run

LARGEST = 1_000_000
"""Maximum size in bytes of a template that CloudFormation reads from S3,
with a margin below 1 MB."""

ARCHITECTURES = ("arm64", "x86_64")

Json = dict[str, Any]

_PARAMETERS: Json = {
    "CodeBucket": {
        "Type": "String",
        "AllowedPattern": "[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]",
        "Description": "Bucket with the functions' zip, in the region of the stack",
    },
    "CodePrefix": {
        "Type": "String",
        "Default": "",
        "AllowedPattern": "([A-Za-z0-9!_.*'()-]+/)*",
        "Description": (
            "Folder of the zips, ending in a slash; another for each release, or the code stays as "
            "it was"
        ),
    },
    "CodeKey": {
        "Type": "String",
        "Default": "",
        "AllowedPattern": "[A-Za-z0-9!_.*'()/-]*",
        "Description": "Key of the zip; empty for deployment-ARCHITECTURE.zip in CodePrefix",
    },
    "Architecture": {
        "Type": "String",
        "Default": ARCHITECTURES[0],
        "AllowedValues": list(ARCHITECTURES),
        "Description": "Processor of the functions; the zip must be built for it",
    },
}
_CONDITIONS: Json = {"CodeKeyByArchitecture": {"Fn::Equals": [{"Ref": "CodeKey"}, ""]}}
_KEY: Json = {
    "Fn::If": [
        "CodeKeyByArchitecture",
        {"Fn::Sub": "${CodePrefix}deployment-${Architecture}.zip"},
        {"Ref": "CodeKey"},
    ]
}


class NotPublishable(Exception):
    """The template cannot be published; the message gives the reason."""


def zip_name(architecture: str) -> str:
    """Return the name of the zip for a processor under CodePrefix."""
    return f"deployment-{architecture}.zip"


def published(sam: Json) -> Json:
    """Return the CloudFormation template of a SAM template, with the code's location and the
    processor as parameters."""
    template = translate(sam)
    for one in template["Resources"].values():
        if one["Type"] == "AWS::Lambda::Function":
            one["Properties"] |= {
                "Code": {"S3Bucket": {"Ref": "CodeBucket"}, "S3Key": _KEY},
                "Architectures": [{"Ref": "Architecture"}],
            }
    return template | {
        "Parameters": _PARAMETERS | template["Parameters"],
        "Conditions": _CONDITIONS | template["Conditions"],
    }


def publish(sam: Path, out: Path) -> int:
    """Write the published template of a SAM template file and return its size in bytes. Raises
    NotPublishable, OSError."""
    text = json.dumps(published(_read(sam)), separators=(",", ":"), sort_keys=True)
    size = len(text.encode())
    if size > LARGEST:
        raise NotPublishable(
            f"{sam}: becomes a template of {size} bytes; CloudFormation takes {LARGEST}"
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, "utf-8")
    return size


def _read(sam: Path) -> Json:
    try:
        template = json.loads(sam.read_text("utf-8"))
    except ValueError:
        template = None
    sections = ("Transform", "Parameters", "Conditions", "Resources")
    if not isinstance(template, dict) or not all(template.get(section) for section in sections):
        raise NotPublishable(
            f"{sam}: is no SAM template; give what python -m infra.aws.package wrote"
        )
    return template


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.aws.publish", description="a template to put into a bucket"
    )
    parser.add_argument("template", type=Path, help="what infra.aws.package wrote: build/sam.json")
    parser.add_argument(
        "--out", default="build/published.json", type=Path, help="the file (build/published.json)"
    )
    given = parser.parse_args(arguments)
    try:
        size = publish(given.template, given.out)
    except NotPublishable as failed:
        sys.stderr.write(f"{failed}\n")
        return 2
    except OSError as failed:
        sys.stderr.write(f"{failed.filename}: {failed.strerror}\n")
        return 2
    sys.stdout.write(f"{given.out} ({size:,} bytes)\n")
    return 0


if __name__ == "__main__":
    run(main)
