"""The page docs/policy.md, made from the tables of chalicelib/policy."""

from __future__ import annotations

from collections.abc import Iterable

from chalicelib.policy.document import METADATA, ROOT, SPEC
from chalicelib.policy.option_tables import GROUPS, OptionDefinition, Status
from chalicelib.policy.options import default_text
from chalicelib.policy.providers import PROVIDERS, vendor_section
from chalicelib.policy.schema import Section, section_of
from chalicelib.policy.settings.cluster_options import AVAILABLE_EXPANDERS
from chalicelib.policy.settings.consolidation import Consolidation
from chalicelib.policy.settings.disruption_budgets import DisruptionBudget
from chalicelib.policy.settings.event_webhook import Webhook
from chalicelib.policy.settings.group_policy import GroupPolicy
from chalicelib.policy.settings.headroom import Headroom
from chalicelib.policy.settings.kubernetes_access import KubernetesAccess
from chalicelib.policy.settings.maintenance_window import Window
from chalicelib.policy.settings.managed_pools import (
    ManagedPool,
    MaxShare,
    PoolLimits,
    Requirements,
)
from chalicelib.policy.settings.max_disruption import MaxDisruption
from chalicelib.policy.settings.node_lifecycle import NodeLifecycle, RepairRule
from chalicelib.policy.settings.node_prices import NodePrices
from chalicelib.policy.settings.notifications import NoticeWebhook, Notifications, QuietHours
from chalicelib.policy.settings.rules import RULE
from chalicelib.policy.settings.scale_up import ScaleUp
from chalicelib.policy.settings.schedules import Schedule
from chalicelib.policy.settings.spot import Spot

EXAMPLE = """\
apiVersion: outscaler.dev/v1
kind: Cluster
metadata: {name: prod-geneva}
spec:
  mode: active
  scanInterval: 20s
  kubernetes: {kubeconfigSecret: ssm:/outscaler/prod-geneva/kubeconfig}
  providers:
    clusterapi: {namespace: default, clusterName: prod-geneva}
  nodeGroups:
    - {provider: clusterapi, id: MachineDeployment/default/workers, min: 1, max: 20}
  options: {scaleDownUnneededTime: 10m, maxNodesTotal: 200}
  webhook: {secret: ssm:/outscaler/prod-geneva/webhook}
"""

_HEAD = f"""\
# The policy document

One YAML (or JSON) document per cluster. `outscaler validate` checks it, `outscaler apply` puts it in force. A wrong document is
refused with every mistake at once: line, path, and what would be right. This page is made by `make docs`.

```yaml
{EXAMPLE}```

## How values are read

- As they are written: `off` is the word off, `012` is refused. Quotes make no difference. An empty default is none. Where true or
  false is expected, `on` and `off` are accepted, too.
- A duration is written as in Go: `30s`, `10m`, `1h30m`, `0`. A bare number is refused.
- `min:max` is `0:320000` or `{{min: 0, max: 320000}}`; memory is counted in GiB. Integers have no sign and no underscore.
- A percentage is whole, with or without its sign: `70`, `70%`.
- A list may be one value; names may be separated by commas.
- A secret is named, never written ([names](deploy.md#secret-names)): `ssm:/<SecretPrefix><cluster>/<use>` is a SecureString
  of SSM (4 KB at most as a standard parameter), without `ssm:/` a secret of AWS Secrets Manager. An ARN is refused.
- A key given twice, a tag (`!…`) or a second document is refused. Anchors and aliases are fine.
"""

_PRICES_NOTE = """\
In one currency: `prices: {instanceTypes: {m5.large: 0.096}, spot: {m5.large: 0.035}, cpu: 0.03, memory: 0.004, gpu: 0.9}`.

A node costs what its instance type costs (label `node.kubernetes.io/instance-type`), otherwise its capacity by the
rates, otherwise what its provider states; [spot nodes](reference/spot.md#prices-of-spot-groups) differ. Of cpu and memory
one may be left out and costs nothing; a node with GPUs has no price without gpu. Nothing is
[converted](reference/expanders.md#currencies). A group without a price is not chosen by price or least-cost. Pods are
weighed by the rates; without rates, [by derived ones](reference/expanders.md#price).\
"""

_POOLS_NOTE = """\
`- {name: general, provider: exoscale, copyFrom: workers, requirements: {cpu: 2..16}}`. Outscaler makes groups of the
machine types that meet the requirements: [managed pools](reference/managed-pools.md). The expander least-cost must be the
first. Names are unique.\
"""

_REQUIREMENTS_NOTE = """\
A range is written `2..16`, `2..`, `..16` or `8`; both ends belong to it.\
"""

_CONSOLIDATION_NOTE = """\
`consolidation: {mode: shadow}` shows what would be saved;
`consolidation: {mode: full, groups: [workers], minSavings: 15%}` acts. Rules:
[consolidation](reference/consolidation.md). Groups need prices, of spec.prices or of their provider.\
"""

_BUDGETS_NOTE = """\
`- {name: always, nodes: 10%}`,
`- {name: office, nodes: 0, reasons: [consolidation], cron: "0 8 * * 1-5", duration: 10h, timeZone: Europe/Zurich}`.

The smallest budget that holds now counts, for each pool by itself. It limits how many nodes are out at once
([counting](reference/consolidation.md#disruption-budgets)); maxDisruption limits how many go in an hour. A budget without
cron always holds. If the policy has any budget, the default of 10% is gone. Names are unique.\
"""

_LIFECYCLE_NOTE = """\
`nodeLifecycle: {maxNodeAge: 720h, drift: replace}`. Rules: [age, drift and repair](reference/node-lifecycle.md). The new
node comes first, then the drain, within disruption budgets, windows and the circuit breaker.
`consolidation.replaceTimeout` says how long a new node may take; consolidation need not be on.\
"""

_REPAIR_NOTE = """\
`- {condition: Ready, status: [False, Unknown], after: 30m}`,
`- {condition: KernelDeadlock, after: 10m, action: restart}`. Conditions besides Ready come from tools such as the
node-problem-detector; for most of them, True means broken. Two rules about the same condition, status and groups are
refused. Cluster API cannot restart a node.\
"""

_SPOT_NOTE = """\
`spot: {groups: [workers-spot], maxShare: 50%, onDemandBase: 2}`; `spot: {}` is enough to act on interruptions. Rules:
[spot nodes](reference/spot.md). Prices are in `prices.spot`, if the provider states none. Exoscale has no spot machines.\
"""

_BRAKE_NOTE = """\
The circuit breaker: `maxDisruption: {nodesPerHour: 20, podsPerHour: 500, share: 25%}`. Planned removals count; pods are
those that must move, without DaemonSet pods. Removals beyond an hourly limit wait, in order. A plan beyond the share
[stops all removals](reference/scale-down.md#circuit-breaker) until `outscaler release NAME`, which lifts share and hourly
limits for a while.\
"""

_WINDOWS_NOTE = """\
`- {name: nights, cron: "0 22 * * 1-5", timeZone: Europe/Zurich, duration: 6h}`. If any window allows removals, nodes are
removed in such windows only. A forbidding window overrides allowing ones. Windows concern the start of removals: drains
in progress continue, and timers run. Names are unique.

When the clock skips the time, the window opens with the first minute after the gap; when it shows the time twice, at the
first. With a star for the hour or the minute it opens as often as the clock shows it. If the day of the month or of the
week begins with a star, both must match; otherwise one of the two is enough.\
"""

_SCALE_UP_NOTE = """\
`scaleUp: {cpuThreshold: 80%, cronTimeZone: Europe/Zurich}`. Without unschedulablePods groups grow only for rules,
minimums and headroom. Neither switch affects removals. expectedCost and learnedTimeouts use what groups
[have taught](reference/learning.md).\
"""

_RULES_NOTE = """\
`- {name: evening, groups: [workers], cron: "47 20 * * *", timeZone: Europe/Zurich, add: 3}`,
`- {name: busy, groups: [workers], metric: cpu, above: 70%, add: auto}`. [Rules](reference/scaling-rules.md) only add nodes.

A rule has either cron or metric. A group has at most ten rules, one of them about cpu and one about memory; a rule counts
for each of its groups, and HorizontalNodeAutoscaler objects count together with these. The share of a metric is what the
pods of the pool request, divided by what its nodes have. It must be above `options.scaleDownUtilizationThreshold`,
otherwise nodes would come and go in turn. A node without which a metric rule would act again stays. Bounds and limits hold
for rules too. Names are unique.\
"""

_SCHEDULES_NOTE = """\
`- {name: night, groups: [workers], cron: "0 20 * * 1-5", duration: 11h, timeZone: Europe/Zurich, max: 2}`,
`- {name: freeze, cron: "0 18 * * 5", duration: 62h, mode: shadow}`. At least one of min, max, headroom and mode.

While it is [open](reference/schedules.md), min and max replace the group's own. A group below min grows, whatever
`options.enforceNodeGroupMinSize` says; nothing is removed because of max. A bound wider than the provider's own holds
only if nodeGroups gives the group bounds under the same name. A cron rule that falls into a window of shadow or off adds
its nodes at the end of the window, if that is within 30 minutes.

Two schedules that set the same thing of one group, or of the cluster, must not be open at once, nor may one's min be
above the other's max. This is checked for the next fourteen months (2,000 openings of a frequent cron), and the refusal
names an instant. An overlap that only a change of the clock causes is a warning: the later one in the document prevails.
Cron is as for maintenanceWindows. Names are unique.\
"""

_HEADROOM_NOTE = """\
`- {name: spare, groups: [workers], pods: 3, cpu: 500m, memory: 1Gi}`, `- {name: tenth, percent: 10%}`.

Either pods with cpu, memory or both, or percent. A group is in one entry at most, and one entry at most is without
groups. Pods may use the capacity at once; [headroom](reference/headroom.md) is restored afterwards. Names are unique.\
"""

_PRICED = ", ".join(name for name, settings in PROVIDERS.items() if settings.states_prices)

_OPTIONS_HEAD = f"""\
## spec.options

Upstream's flags in lowerCamelCase. Tables have the options in force; [the others](#options-without-effect) are accepted
or refused with a hint.

- Expanders: {", ".join(AVAILABLE_EXPANDERS)}.
  [How they choose](reference/expanders.md). A chain names each once, and nothing after random. price and least-cost need
  spec.prices, or a provider that states prices: {_PRICED}.
  grpc is refused: no other choice could stand for its answer.
- The expander priority reads the ConfigMap `cluster-autoscaler-priority-expander` in the namespace of the option
  namespace, key `priorities`, as upstream's: whole numbers to lists of regular expressions (RE2, found anywhere in the
  group's id, at most 1,000 characters). Without it, the priorities under nodeGroups count.
- bypassedSchedulerNames must be among allowedSchedulerNames, if that is set. drainPriorityConfig excludes a non-default
  maxGracefulTerminationSec.
"""

_WITHOUT_EFFECT = """\
### Options without effect

| Word | Meaning |
|---|---|
| accepted | checked; `outscaler validate` warns |
| not read | upstream has dropped it, or no longer reads it; warned |
| no meaning | about a process inside the cluster, or about GCE; warned |
| elsewhere | has its own place in the document; refused, with that place |
"""


_NOTIFICATIONS_NOTE = """\
Messages about conditions of the cluster: [notifications](notifications.md). At least one destination is needed. Names of
topics begin with `outscaler-`, because the deployment may publish to no others.\
"""


def reference() -> str:
    parts = [
        _HEAD,
        _fields("The document", ROOT),
        _fields("metadata", METADATA),
        _fields("spec", SPEC),
        _fields(
            "spec.kubernetes",
            section_of(KubernetesAccess),
            (
                "Exactly one of kubeconfigSecret, kubeconfigFile and eksCluster, or "
                "inClusterKubeconfigSecret alone."
            ),
        ),
        _fields("spec.nodeGroups[]", section_of(GroupPolicy), "Ids are unique over all providers."),
        _fields("spec.managedPools[]", section_of(ManagedPool), _POOLS_NOTE),
        _fields(
            "spec.managedPools[].requirements",
            section_of(Requirements),
            _REQUIREMENTS_NOTE,
            level="###",
        ),
        _fields("spec.managedPools[].limits", section_of(PoolLimits), level="###"),
        _fields("spec.managedPools[].maxShare", section_of(MaxShare), level="###"),
        _fields("spec.prices", section_of(NodePrices), _PRICES_NOTE),
        _fields("spec.maxDisruption", section_of(MaxDisruption), _BRAKE_NOTE),
        _fields("spec.consolidation", section_of(Consolidation), _CONSOLIDATION_NOTE),
        _fields("spec.disruptionBudgets[]", section_of(DisruptionBudget), _BUDGETS_NOTE),
        _fields("spec.nodeLifecycle", section_of(NodeLifecycle), _LIFECYCLE_NOTE),
        _fields("spec.nodeLifecycle.repair[]", section_of(RepairRule), _REPAIR_NOTE, level="###"),
        _fields("spec.spot", section_of(Spot), _SPOT_NOTE),
        _fields("spec.maintenanceWindows[]", section_of(Window), _WINDOWS_NOTE),
        _fields("spec.scaleUp", section_of(ScaleUp), _SCALE_UP_NOTE),
        _fields("spec.rules[]", RULE, _RULES_NOTE),
        _fields("spec.schedules[]", section_of(Schedule), _SCHEDULES_NOTE),
        _fields("spec.headroom[]", section_of(Headroom), _HEADROOM_NOTE),
        _fields("spec.webhook", section_of(Webhook)),
        _fields("spec.notifications", section_of(Notifications), _NOTIFICATIONS_NOTE),
        _fields("spec.notifications.webhook", section_of(NoticeWebhook), level="###"),
        _fields("spec.notifications.quietHours[]", section_of(QuietHours), level="###"),
        "## spec.providers\n\nAt least one.\n",
        *(
            _fields(
                name, vendor_section(settings), f"Group ids: `{settings.group_example}`.", "###"
            )
            for name, settings in PROVIDERS.items()
        ),
        _OPTIONS_HEAD,
        *(f"### {title}\n\n{_options(rows)}" for title, rows in _effective().items()),
        f"{_WITHOUT_EFFECT}\n{_ineffective()}",
    ]
    return "\n".join(parts)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _fields(title: str, section: Section, note: str = "", level: str = "##") -> str:
    rows = (
        (
            f"`{field.key}`",
            field.kind.name,
            "required" if field.required else _code(field.default_text),
            field.meaning,
        )
        for field in section.fields
    )
    lead = f"{note}\n\n" if note else ""
    return f"{level} {title}\n\n{lead}{_table(('Key', 'Kind', 'Default', 'Meaning'), rows)}"


_EFFECTIVE = (Status.IN_FORCE, Status.ALIAS, Status.ALWAYS)
_INEFFECTIVE = {
    Status.ACCEPTED: "accepted",
    Status.IGNORED: "not read",
    Status.MEANINGLESS: "no meaning",
    Status.ELSEWHERE: "elsewhere",
}


def _effective() -> dict[str, list[OptionDefinition]]:
    """Return the options that have an effect, by the title of their group."""
    groups = {
        title: [row for row in rows if row.status in _EFFECTIVE] for title, rows in GROUPS.items()
    }
    return {title: rows for title, rows in groups.items() if rows}


def _options(rows: Iterable[OptionDefinition]) -> str:
    return _table(
        ("Option", "Kind", "Default", "Meaning"),
        (
            (f"`{row.name}`", row.kind.name, _code(default_text(row)), _effective_meaning(row))
            for row in rows
        ),
    )


def _effective_meaning(option: OptionDefinition) -> str:
    always = " Always on; turning it off is warned about." if option.status is Status.ALWAYS else ""
    note = f" ({option.note})" if option.note else ""
    return f"{option.meaning}{always}{note}"


def _ineffective() -> str:
    """Return a table with a row for all options of which the same is said."""
    names: dict[tuple[Status, str], list[str]] = {}
    for rows in GROUPS.values():
        for row in rows:
            if row.status in _INEFFECTIVE:
                note = f"write {row.note}" if row.status is Status.ELSEWHERE else row.note
                names.setdefault((row.status, note), []).append(f"`{row.name}`")
    return _table(
        ("Word", "Options", "Note"),
        (
            (_INEFFECTIVE[status], ", ".join(options), note)
            for status in _INEFFECTIVE
            for (said, note), options in names.items()
            if said is status
        ),
    )


def _code(text: str) -> str:
    return f"`{text}`" if text else ""
