"""The deployment target: a stage of .chalice/config.json, and the account and
region of the credentials.

Settings that Chalice supports (memory, architecture, subnets, X-Ray) are where Chalice reads them.
The others are in the stage's section `outscaler`, which Chalice ignores.
"""

from __future__ import annotations

import json
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import boto3
import msgspec
from botocore.exceptions import BotoCoreError, ClientError

from chalicelib.model.errors import BadInput
from chalicelib.model.resource_names import prefix_for

ROOT = Path(__file__).resolve().parents[3]
CONFIG = Path(".chalice") / "config.json"
PASS_CONCURRENCY = "OUTSCALER_PASS_CONCURRENCY"
"""Read by chalicelib/functions/reconcile.py where Chalice packages it."""

_HERE = str(CONFIG)


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The section `outscaler` of a stage.

    providers: providers whose queues are always polled, in addition to those that stored policies
    name. kms_key_arn: the key that encrypts tables, queues and variables; "" for AWS's own key.
    alarm_topic_arn: the topic that receives alarms. account_concurrency: Lambda's quota of
    concurrent executions, with which an alarm compares. dashboard: whether there is a CloudWatch
    dashboard. decisions_days: how long recorded decisions are kept in a bucket, 0: there is none.
    share_lists: whether processes share the lists of clusters in a bucket. hosted_page: whether the
    API serves the status page; its key is the secret `page-key` under the stage's prefix.
    access_log: whether API Gateway logs requests. events_rate, events_burst: requests per second,
    and burst size, of the events route.
    """

    providers: tuple[str, ...] = ()
    kms_key_arn: str = ""
    alarm_topic_arn: str = ""
    account_concurrency: int = 1000
    dashboard: bool = False
    hosted_page: bool = False
    decisions_days: Annotated[int, msgspec.Meta(ge=0, le=3650)] = 0
    share_lists: bool = False
    access_log: bool = True
    events_rate: float = 50
    events_burst: int = 100


class Stage(msgspec.Struct, frozen=True):
    """name: of the stage. prefix: of the names of its tables, queues and functions. config: its
    section of the configuration, unchanged. account, region, partition: where it is deployed."""

    name: str
    prefix: str
    config: dict[str, Any]
    options: Options
    account: str = ""
    region: str = ""
    partition: str = "aws"
    suffix: str = "amazonaws.com"


def load(name: str, root: Path = ROOT) -> Stage:
    """Read the stage with this name, without an account. Raises BadInput that names the
    place in the configuration."""
    try:
        config = json.loads((root / CONFIG).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(
            _HERE, f"cannot be read ({error})", "restore it from the repository"
        ) from None
    stages = config.get("stages", {}) if isinstance(config, dict) else {}
    if name not in stages:
        near = get_close_matches(name, stages, n=1)
        raise BadInput(
            f"stage {name}",
            f"is not in {_HERE}",
            f"did you mean {near[0]}?"
            if near
            else f"use one of {', '.join(stages)}, or add it there",
        )
    place = f"{_HERE}: stages.{name}"
    variables = stages[name].get("environment_variables", {})
    prefix = prefix_for(name)
    if variables.get("OUTSCALER_PREFIX") != prefix:
        raise BadInput(
            f"{place}.environment_variables.OUTSCALER_PREFIX",
            "does not follow from the stage's name",
            f"write {prefix}",
        )
    passes = str(variables.get(PASS_CONCURRENCY, "20"))
    if not (passes.isascii() and passes.isdigit() and 2 <= int(passes[:6]) <= 1000):
        raise BadInput(
            f"{place}.environment_variables.{PASS_CONCURRENCY}",
            f"is {passes[:20]!r}",
            "write a number from 2 to 1000",
        )
    try:
        options = msgspec.convert(stages[name].get("outscaler", {}), Options)
    except msgspec.ValidationError as error:
        raise BadInput(
            f"{place}.outscaler", str(error), "see docs/deploy.md#stage-settings"
        ) from None
    return Stage(name, prefix, stages[name], options)


def locate(stage: Stage, session: boto3.Session) -> Stage:
    """Return the stage with the account, region and partition of the credentials. Raises
    BadInput without credentials."""
    region = session.region_name
    if not region:
        raise BadInput("AWS region", "is not set", "set AWS_REGION, or a region in the profile")
    try:
        identity = session.client("sts").get_caller_identity()
    except (BotoCoreError, ClientError) as error:
        raise BadInput(
            "AWS credentials",
            f"are not accepted ({error})",
            "set AWS_PROFILE or the variables of a role, and try aws sts get-caller-identity",
        ) from None
    partition = str(identity["Arn"]).split(":")[1]
    suffix = "amazonaws.com.cn" if partition == "aws-cn" else "amazonaws.com"
    return msgspec.structs.replace(
        stage, account=identity["Account"], region=region, partition=partition, suffix=suffix
    )
