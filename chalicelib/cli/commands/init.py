"""`outscaler init`: asks five questions and prints a first policy document, in mode shadow.

Every answer may be an argument instead, so that scripts can use it. The document is one that
`outscaler validate` accepts; nothing is stored, and no secret is asked for. Its secrets are
parameters of SSM, unless an argument says Secrets Manager; the commands that store them are
printed.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import msgspec

from chalicelib.cli.arguments import SECRET_STORES, add_secret_arguments, store_command
from chalicelib.cli.deployment_settings import settings_here
from chalicelib.cli.output import warn
from chalicelib.cli.policy_files import load_document
from chalicelib.model.errors import BadInput
from chalicelib.policy.document import API_VERSION, KIND
from chalicelib.policy.providers import PROVIDERS
from chalicelib.policy.secret_names import named_by
from chalicelib.policy.value_types import DNS_LABEL
from chalicelib.reasons.words import counted

_TRIES = 5


class InitQuestion(msgspec.Struct, frozen=True):
    """A question. argument: the option that answers it; text: the prompt, empty where it depends on
    the provider; default: of an empty answer."""

    argument: str
    text: str
    default: str = ""


class ProviderStart(msgspec.Struct, frozen=True):
    """The first settings of a provider. keys: asked for, in order; prompt: says what they are;
    credentials: whether it needs a secret of its own; more: settings that are secrets, key ->
    suffix of the secret's name; options: defaults of the vendor's own autoscaler that differ,
    written out; priced: whether its groups have prices without the policy."""

    keys: tuple[str, ...]
    prompt: str
    credentials: bool = True
    more: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    priced: bool = True


STARTS = {
    "alicloud": ProviderStart(
        ("region", "nodes"), "Region and one scaling group, such as cn-hangzhou 1:10:asg-…"
    ),
    "clusterapi": ProviderStart(
        ("clusterName",),
        "Cluster API's Cluster with its namespace, such as default/prod",
        credentials=False,
        priced=False,
    ),
    "cherryservers": ProviderStart(
        ("clusterName", "nodes"),
        "Name of the cluster in the machines' tags and one pool, such as prod 0:10:pool1",
        more=(("cloudConfigSecret", "-cloud-config"), ("bootstrapTokenSecret", "-bootstrap-token")),
    ),
    "exoscale": ProviderStart(("zone",), "Zone, such as ch-gva-2", priced=False),
    "huaweicloud": ProviderStart(
        ("region", "clusterId"),
        "Region and id of the CCE cluster, such as cn-north-4 2292498e-…",
        options=(("scaleDownEnabled", False), ("scaleDownDelayAfterDelete", "10m")),
    ),
}


_CONSOLIDATION = """\
  # Consolidation drains or replaces nodes that cost too much. In mode shadow, outscaler plan and \
outscaler cost show
  # what it would save, and nothing is changed.
  # consolidation: {mode: shadow}
"""
_LIFECYCLE = """\
  # Nodes that are old or outdated are replaced, within the disruption budgets; \
repair is for sick ones.
  # nodeLifecycle: {maxNodeAge: 720h, drift: replace}
"""
_SPOT = """\
  # With spot groups, nodes that their vendor takes back are replaced and drained before they go.
  # spot: {maxShare: 50%}
"""
_PRICES = """\
  # The provider names no prices. Per hour, of a core and of a GiB, or of instanceTypes:
  # prices: {cpu: 0.03, memory: 0.004, currency: EUR}
"""
_REMOVALS = """\
  # It needs options.scaleDownEnabled: true.
"""
_OF_DEPLOYMENT = "the deployment's"
QUESTIONS = (
    InitQuestion("name", "Name of the cluster (small letters, digits, dashes)"),
    InitQuestion("provider", f"Provider ({', '.join(STARTS)})"),
    InitQuestion("location", ""),
    InitQuestion("secret_prefix", "Prefix of the deployment's secrets", _OF_DEPLOYMENT),
    InitQuestion("max_nodes", "Most nodes that the cluster may have in all (0: no limit)", "0"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add an argument per question, and the file."""
    parser.add_argument(
        "file", metavar="FILE", nargs="?", type=Path, help="a new file (default: standard output)"
    )
    parser.add_argument("--name", help="the cluster's name")
    parser.add_argument("--provider", help="the provider of its node groups")
    parser.add_argument(
        "--location", help="the provider's region, zone or cluster, as the question says"
    )
    add_secret_arguments(parser)
    parser.add_argument("--max-nodes", metavar="N", help="most nodes in all; 0 for no limit")


def run(args: argparse.Namespace) -> int:
    """Ask what is not given, and print or write the document. Returns 0; raises BadInput for an
    answer that cannot be used, where no terminal can be asked again."""
    if args.file is not None and args.file.exists():
        raise BadInput(str(args.file), "exists already", "name a new file")
    if args.secret_prefix is None and (notice := settings_here().notice):
        warn(notice)
    answers: dict[str, str] = {}
    for question in QUESTIONS:
        answers[question.argument] = _answer(question, getattr(args, question.argument), answers)
    text = document(answers, args.secret_store)
    name = answers["name"]
    if args.file is None:
        sys.stdout.write(text)
        file = f"{name}.yaml"
    else:
        with args.file.open("x", encoding="utf-8") as opened:
            opened.write(text)
        file = str(args.file)
    file = shlex.quote(file)
    sys.stderr.write("".join(f"Store: {store_command(secret)}\n" for secret in _secrets(text)))
    sys.stderr.write(
        f"Next: outscaler validate {file} && outscaler plan --kubeconfig FILE --policy {file}\n"
    )
    return 0


def document(answers: dict[str, str], secret_store: str) -> str:
    """Return the document of the answers, one per question. secret_store: one of SECRET_STORES.
    Raises BadInput where validate would refuse it."""
    import yaml

    name, provider = answers["name"], answers["provider"]
    start, prefix = STARTS[provider], SECRET_STORES[secret_store] + answers["secret_prefix"]
    settings: dict[str, Any] = dict(zip(start.keys, answers["location"].split(), strict=True))
    settings |= _in_namespace(settings.get("clusterName", "")) if provider == "clusterapi" else {}
    if start.credentials:
        settings["credentialsSecret"] = f"{prefix}{name}/{provider}"
    settings |= {key: f"{prefix}{name}/{provider}{suffix}" for key, suffix in start.more}
    spec: dict[str, Any] = {
        "mode": "shadow",
        "kubernetes": {"kubeconfigSecret": f"{prefix}{name}/kubeconfig"},
        "providers": {provider: settings},
    }
    options = {**dict(start.options), "maxNodesTotal": int(answers["max_nodes"])}
    if not options["maxNodesTotal"]:
        del options["maxNodesTotal"]
    if options:
        spec["options"] = options
    policy = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}
    text: str = yaml.safe_dump(policy, sort_keys=False, allow_unicode=True)
    text += _CONSOLIDATION + ("" if options.get("scaleDownEnabled", True) else _REMOVALS)
    text += "" if start.priced else _PRICES
    text += _LIFECYCLE + (_SPOT if PROVIDERS[provider].spot else "")
    load_document(text, "the new policy")
    return text


def _in_namespace(cluster: str) -> dict[str, str]:
    """Return the settings of a Cluster given as namespace/name, whose objects a role of that
    namespace may read. Without a namespace all of them are read, which takes a role for all."""
    namespace, slash, name = cluster.partition("/")
    return {"namespace": namespace, "clusterName": name} if slash else {}


def _secrets(text: str) -> list[str]:
    """Return the names of the secrets that the document names."""
    return [name for _, name, _ in named_by(load_document(text, "the new policy")[0])]


def _answer(question: InitQuestion, argument: str | None, before: dict[str, str]) -> str:
    """Return the answer: the argument, otherwise what a person at a terminal writes.
    before: the earlier answers."""
    text = question.text or STARTS[before["provider"]].prompt
    place = f"--{question.argument.replace('_', '-')}"
    default = (
        settings_here().deployment.secret_prefix
        if question.default == _OF_DEPLOYMENT
        else question.default
    )
    if argument is not None:
        _check(question.argument, argument, before, place)
        return argument
    if not sys.stdin.isatty():
        if default:
            return default
        raise BadInput(
            place, "is not given, and standard input is not a terminal", f"give it: {text}"
        )
    for _ in range(_TRIES):
        sys.stderr.write(f"{text}{f' [{default}]' if default else ''}: ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise KeyboardInterrupt
        answer = line.strip() or default
        if not answer:
            sys.stderr.write(f"An answer is needed: {text}.\n")
            continue
        try:
            _check(question.argument, answer, before, place)
        except BadInput as error:
            sys.stderr.write(f"{error.problem}; {error.remedy}\n")
        else:
            return answer
    raise BadInput(place, "has no usable answer", text)


def _check(argument: str, answer: str, before: dict[str, str], place: str) -> None:
    """Raise BadInput for an answer that cannot be used."""
    if argument == "provider" and answer not in STARTS:
        raise BadInput(
            place, f"{answer[:60]!r} is not a provider", f"write one of {', '.join(STARTS)}"
        )
    if argument == "max_nodes" and not (answer.isascii() and answer.isdigit() and len(answer) < 7):
        raise BadInput(
            place, f"{answer[:60]!r} is not a number of nodes", "write a number such as 100, or 0"
        )
    if argument == "location" and len(answer.split()) != len(
        keys := STARTS[before["provider"]].keys
    ):
        raise BadInput(
            place,
            f"{answer[:60]!r} is not {counted(len(keys), 'word')}",
            f"write {' and '.join(keys)}",
        )
    if argument == "name" and not re.match(DNS_LABEL.form()["pattern"], answer):
        raise BadInput(
            place,
            f"{answer[:60]!r} is not a cluster's name",
            "use small letters, digits and inner dashes",
        )
