"""The deployed artifact at work under Lambda's own runtime client: what each function does, and that it may do it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.local.controllers import seed
from tests.functional.desk import sample
from tests.functional.hosted_shop import GROWS, METAL, Shop, pods_for, shops


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    yield from shops(tmp_path_factory.mktemp("hosted"))


def test_play(shop: Shop) -> None:
    import time
    b=time.time()
    shop.kube
    from infra.local.controllers import seed as s
    s.apply(shop.kube, s.machine_deployment("workers", 1, 1, 4), s.deployment("web", replicas=2, cpu="1"))
    shop.play(2)
    print("2min", time.time()-b)
    shop.scale("web", 6)
    s.apply(shop.kube, *(pods_for(METAL if n == "cherryservers" else n) for n in GROWS))
    made = shop.post(sample("core-v1-failed-scheduling"))
    print(made)
    shop.play(8)
    print("10min", time.time()-b)
    print(shop.replicas("workers"), [shop.nodes(METAL if n == "cherryservers" else n) for n in GROWS])
    shop.scale("web", 1)
    shop.play(8)
    print("18min", time.time()-b, shop.replicas("workers"))
    for name, made in shop.hosted.made.items():
        print(name, len(made), [m.error for m in made if m.error], shop.hosted.processes[name].init_seconds, shop.hosted.processes[name].peak_megabytes())
    print(shop.hosted.door.judge.denied[:10], shop.hosted.door.strange[:5])
    used = {(function, sid, asked.action) for function, sid, asked in shop.hosted.door.judge.used}
    granted = {(f, st.sid, a) for f, sts in shop.hosted.door.judge.roles.items() for st in sts for a in st.actions}
    print(sorted(granted-used))
    for line in shop.hosted.made["outscaler-dev-reconcile"][-1].log.splitlines()[-15:]: print(line[:600])
