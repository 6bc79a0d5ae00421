"""Cases D: which pods may go, which hold their node, and by which rule."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.model.pod import Owner, Pod, PodClass, Volume
from chalicelib.model.policy import Options
from chalicelib.model.reason import Code
from chalicelib.model.selector import Requirement, Selector
from chalicelib.model.snapshot import Budget, Controller
from chalicelib.plan import drain
from chalicelib.plan.budgets import BudgetLedger
from chalicelib.plan.drain.verdict import Action, Context
from tests.builders import NOW

_DIR = Volume("scratch-1", "emptyDir"), Volume("scratch-2", "emptyDir"), Volume("scratch-3", "hostPath")


def _assess(cls: dict[str, Any], pod: dict[str, Any] | None = None, budgets: tuple[Budget, ...] = (),
            controllers: tuple[Controller, ...] = (), **options: Any) -> tuple[Action, Code | None]:
    made = PodClass(**{"namespace": "default", "labels": {"app": "x"}, "requests": {},
                       "owner": Owner("ReplicaSet", "rs", "u"), **cls})
    fields: dict[str, Any] = {"created": NOW - 7200, "node": "n", "phase": "Running", **(pod or {})}
    context = Context(now=NOW, options=Options(**options), budgets=BudgetLedger(budgets, [made]),
                      controllers={(c.kind, c.namespace, c.name): c for c in controllers},
                      controller_kinds=frozenset(c.kind for c in controllers))
    verdict = drain.assess(Pod(made.namespace, "p", "u", 0, **fields), made, context)
    return verdict.action, verdict.reason.code if verdict.reason else None


_SYSTEM: dict[str, Any] = {"namespace": "kube-system"}
_YOUNG = {"created": NOW - 59 * 60}
_APP = Selector((Requirement("app", "In", ("x",)),))
_OTHER = Selector((Requirement("app", "In", ("y",)),))

MOVE, SKIP, EVICT, WAIT, BLOCK = Action.MOVE, Action.SKIP, Action.EVICT, Action.WAIT, Action.BLOCK


@pytest.mark.parametrize(("cls", "pod", "action", "code"), [
    pytest.param({"owner": None}, {}, BLOCK, Code.NOT_REPLICATED, id="D1-bare"),
    pytest.param({}, {}, MOVE, None, id="D1-replicaset"),
    pytest.param({**_SYSTEM, "mirror": True, "owner": None}, {}, SKIP, None, id="D1-mirror"),
    pytest.param({"owner": Owner("DaemonSet", "d", "u")}, {}, EVICT, None, id="D2-daemonset"),
    pytest.param(_SYSTEM, _YOUNG, BLOCK, Code.KUBE_SYSTEM, id="D3-young-system-pod"),
    pytest.param(_SYSTEM, {"created": NOW - 61 * 60}, MOVE, None, id="D3-old-system-pod"),
    pytest.param({"volumes": _DIR[:1]}, {}, BLOCK, Code.LOCAL_STORAGE, id="D4-emptyDir"),
    pytest.param({"volumes": (Volume("m", "emptyDirMemory"),)}, {}, MOVE, None, id="D4-in-memory"),
    pytest.param({"volumes": (Volume("c", "configMap"),)}, {}, MOVE, None, id="D4-configMap"),
    pytest.param({"volumes": _DIR[2:]}, {}, BLOCK, Code.LOCAL_STORAGE, id="D4-hostPath"),
    pytest.param({"volumes": _DIR, "safe_local_volumes": "scratch-1,scratch-2,scratch-3"}, {}, MOVE, None,
                 id="D5-all-named"),
    pytest.param({"volumes": _DIR, "safe_local_volumes": "scratch-1,scratch-2"}, {}, BLOCK, Code.LOCAL_STORAGE,
                 id="D5-two-named"),
    pytest.param({"volumes": _DIR[:1], "safe_local_volumes": ","}, {}, BLOCK, Code.LOCAL_STORAGE, id="D5-comma"),
    pytest.param({"volumes": _DIR[:2], "safe_local_volumes": "scratch-1, scratch-2"}, {}, BLOCK, Code.LOCAL_STORAGE,
                 id="D5-a-space-is-part-of-the-name"),
    pytest.param({"owner": None, "safe_to_evict": "true"}, {}, MOVE, None, id="D6-bare-but-safe"),
    pytest.param({**_SYSTEM, "safe_to_evict": "true"}, _YOUNG, MOVE, None, id="D6-system-but-safe"),
    pytest.param({"safe_to_evict": "false"}, {}, BLOCK, Code.NOT_SAFE_TO_EVICT, id="D6-not-safe"),
    pytest.param({"safe_to_evict": "no"}, {}, MOVE, None, id="D6-only-exact-values-count"),
    pytest.param({"safe_to_evict": "on-completion"}, {}, WAIT, None, id="D6-on-completion"),
    pytest.param({}, {"deleted": NOW - 60, "deletion_grace": 0.0}, SKIP, None, id="D8-long-gone"),
    pytest.param({}, {"deleted": NOW - 20, "deletion_grace": 0.0}, MOVE, None, id="D8-just-going"),
    pytest.param({}, {"deleted": NOW - 61}, SKIP, None, id="D8-default-grace"),
    pytest.param({}, {"deleted": NOW - 180, "deletion_grace": 360.0}, MOVE, None, id="D8-long-grace"),
    pytest.param({"owner": None}, {"phase": "Failed"}, EVICT, None, id="D9-failed"),
    pytest.param({"owner": None, "restart_policy": "OnFailure"}, {"phase": "Succeeded"}, EVICT, None, id="D9-done"),
    pytest.param({"owner": Owner("Game", "g", "u")}, {}, BLOCK, Code.NOT_REPLICATED, id="D10-custom-controller"),
])
def test_the_rules(cls: dict[str, Any], pod: dict[str, Any], action: Action, code: Code | None) -> None:
    assert _assess(cls, pod) == (action, code)


def test_D2_a_missing_daemonset_blocks_where_daemonsets_can_be_read() -> None:
    other = (Controller("DaemonSet", "default", "other"),)
    assert _assess({"owner": Owner("DaemonSet", "gone", "u")}, controllers=other) == (BLOCK, Code.CONTROLLER_NOT_FOUND)


@pytest.mark.parametrize(("namespace", "selector", "moves"), [
    ("kube-system", _APP, True), ("kube-system", _OTHER, False), ("default", _APP, False)])
def test_D3_a_budget_of_its_own_namespace_frees_a_system_pod(namespace: str, selector: Selector, moves: bool) -> None:
    got = _assess(_SYSTEM, _YOUNG, budgets=(Budget(namespace, "b", selector, 1),))
    assert got == ((MOVE, None) if moves else (BLOCK, Code.KUBE_SYSTEM))


@pytest.mark.parametrize(("allowed", "annotation", "action"), [(0, "", BLOCK), (1, "", MOVE), (0, "true", MOVE)])
def test_D7_budgets(allowed: int, annotation: str, action: Action) -> None:
    assert _assess({"safe_to_evict": annotation}, budgets=(Budget("default", "b", _APP, allowed),))[0] is action


def test_D10_custom_controllers_may_be_allowed() -> None:
    owner = {"owner": Owner("Game", "g", "u")}
    assert _assess(owner, skip_nodes_with_custom_controller_pods=False) == (MOVE, None)


def test_D11_too_few_replicas() -> None:
    one = (Controller("ReplicaSet", "default", "rs", replicas=1),)
    assert _assess({}, controllers=one, min_replica_count=2) == (BLOCK, Code.MIN_REPLICAS)
    assert _assess({}, controllers=one, min_replica_count=1) == (MOVE, None)


def test_D12_a_pod_under_two_budgets_uses_one_of_each() -> None:
    cls = PodClass(namespace="default", labels={"app": "x"}, requests={})
    ledger = BudgetLedger((Budget("default", "a", _APP, 1), Budget("default", "b", _APP, 2)), [cls])
    assert ledger.use([0]) is False
    assert (ledger.left("default/a"), ledger.left("default/b")) == (0, 1)
    assert ledger.use([0]) is True, "more at once than a budget has left is risky"


def test_the_table_is_upstreams_order() -> None:
    assert [name for name, _ in drain.RULES] == [
        "Mirror", "LongTerminating", "ReplicaCount", "DaemonSet", "SafeToEvict", "Terminal", "OnCompletion",
        "Replicated", "System", "NotSafeToEvict", "LocalStorage", "PDB"]
