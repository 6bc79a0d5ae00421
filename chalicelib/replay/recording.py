"""Stores the decision of a pass after its lease was released. A failure is logged and changes nothing else."""

from __future__ import annotations

from functools import lru_cache

from chalicelib.model.errors import OutscalerError
from chalicelib.model.plan import Plan
from chalicelib.replay.decision_place import DecisionWriter, writer
from chalicelib.replay.planner_inputs import reduced
from chalicelib.replay.recorded_decision import RecordedDecision, encode, key_of
from chalicelib.runtime.log import failure, logger


def has_changes(plan: Plan) -> bool:
    """Return whether a plan changes the cluster, or would in another mode."""
    return bool(plan.scale_ups or plan.removals or plan.repairs or plan.operations)


def record(decision: RecordedDecision, place: str) -> bool:
    """Store a decision and return whether it was stored. place: see decision_place.py. Raises nothing."""
    cluster, plan = decision.snapshot.cluster, decision.plan.id
    try:
        data = encode(reduced(decision))
        _writer(place).put(key_of(decision).path(), data)
    except OutscalerError as error:
        logger.error("decision not recorded", cluster=cluster, plan=plan, **failure(error))
        return False
    except Exception:
        logger.exception("decision not recorded, for an unexpected reason", cluster=cluster, plan=plan)
        return False
    logger.info("decision recorded", cluster=cluster, plan=plan, bytes=len(data))
    return True


@lru_cache(maxsize=4)
def _writer(place: str) -> DecisionWriter:
    return writer(place)
