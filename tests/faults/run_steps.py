"""The steps of a run: time, messages, single faults, periods of faults, and user
actions (user_actions.py).

A rule takes the run and a source of choices, does one thing, and returns a description of it. The
same rules are driven by a seed and by hypothesis.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from infra.emulators.lambda_events import sqs_event, sqs_record
from infra.emulators.virtual_sqs import late, lost, twice
from tests.faults import mark_events, node_events, user_actions
from tests.faults.cluster import FAT, GROUPS, WIDE
from tests.faults.fault_schedule import API, FAIL, KILL, LOSE, PAUSE, QUEUE, TABLE, VENDOR, Strike
from tests.faults.run_state import FaultRun

Rule = Callable[[FaultRun, Random], str]
ACT = "act_clusterapi"


# -- time and messages


def moment(m: FaultRun, dice: Random) -> str:
    """Advances a few seconds."""
    return _pass(m, dice.choice((1.0, 3.0, 6.0, 12.0)))


def while_(m: FaultRun, dice: Random) -> str:
    """Advances about a minute."""
    return _pass(m, dice.choice((15.0, 30.0, 45.0, 75.0)))


def long_while(m: FaultRun, dice: Random) -> str:
    """Advances several minutes."""
    return _pass(m, dice.choice((180.0, 300.0)))


def _pass(m: FaultRun, seconds: float) -> str:
    m.world.step(seconds)
    return f"{seconds:.0f} s pass"


def tick_again(m: FaultRun, dice: Random) -> str:
    """Fires EventBridge once more."""
    m.world.tick()
    return "another tick"


def out_of_order(m: FaultRun, dice: Random) -> str:
    """Delivers any of the visible messages instead of the first."""
    if not [each for each in m.world.queues.waiting() if each.visible_at <= m.world.clock()]:
        return ""
    choice = dice.randrange(10)
    m.world.queues.pick = lambda visible: visible[choice % len(visible)]
    try:
        m.world.deliver()
    finally:
        m.world.queues.pick = lambda visible: visible[0]
    return "a message out of order"


def once_more(m: FaultRun, dice: Random) -> str:
    """Delivers an old message again, whatever its outcome was; SQS does so only
    after the message's delay."""
    sent = [
        message for message in m.world.queues.sent[-12:] if message.visible_at <= m.world.clock()
    ]
    if not sent:
        return ""
    message = dice.choice(sent)
    record = sqs_record(
        message.queue, f"again-{m.steps}", "receipt", message.body, {"ApproximateReceiveCount": "2"}
    )
    m.world.invoke(message.queue, sqs_event(record))
    return f"an old message to {message.queue} again"


def trick(m: FaultRun, dice: Random) -> str:
    """Loses, duplicates or delays one of the next messages."""
    name, made = dice.choice(
        (("lost", lost), ("twice", twice), ("60 s late", late(60.0)), ("5 min late", late(300.0)))
    )
    skipped = dice.randrange(3)
    m.world.weather.tricks.extend([*[lambda message: (message,)] * skipped, made])
    return f"message {skipped + 1} from now: {name}"


def rubbish(m: FaultRun, dice: Random) -> str:
    """Delivers a message with invalid content."""
    queue = dice.choice(("reconcile", ACT))
    body = dice.choice(
        (
            "",
            "nonsense",
            "[]",
            '{"cluster": 7}',
            '{"cluster": "shop", "operation": "none-such"}',
            '{"cluster": "another", "operation": "remove-1"}',
        )
    )
    m.world.invoke(queue, sqs_event(sqs_record(queue, f"rubbish-{m.steps}", "receipt", body, {})))
    return f"rubbish to {queue}: {body}"


# -- single faults


def _strike(
    m: FaultRun, dice: Random, kind: str, *, doors: tuple[str, ...] = ("", TABLE, API)
) -> Strike:
    functions: tuple[str, ...] = ("", ACT, ACT)
    if m.own is not None:
        doors = (*doors, VENDOR, VENDOR)
        functions = ("", ACT, f"act_{m.own.provider}", f"act_{m.own.provider}")
    strike = Strike(
        kind,
        dice.randint(1, 30),
        dice.choice(doors),
        dice.choice(functions),
        writing=dice.random() < 0.6,
        after=dice.random() < 0.5,
    )
    if strike.writing:
        strike.countdown = 1 + strike.countdown // 4
    m.world.weather.strikes.append(strike)
    return strike


def _reported(strike: Strike) -> str:
    return (
        f"{strike.kind} {'after' if strike.after else 'at'} "
        f"{'write' if strike.writing else 'call'} "
        f"{strike.countdown} of {strike.function or 'anybody'} to {strike.door or 'any door'}"
    )


def kill(m: FaultRun, dice: Random) -> str:
    """Kills a process around one of the next I/Os."""
    return _reported(_strike(m, dice, KILL))


def fail(m: FaultRun, dice: Random) -> str:
    """Lets a call fail."""
    return _reported(_strike(m, dice, FAIL, doors=("", TABLE, API, QUEUE)))


def lose(m: FaultRun, dice: Random) -> str:
    """Carries out a call and loses its answer."""
    return _reported(_strike(m, dice, LOSE, doors=("", TABLE, API, QUEUE)))


def pause(m: FaultRun, dice: Random) -> str:
    """Pauses a process in the middle of its work while others work and a user may act."""
    strike = _strike(m, dice, PAUSE)
    strike.seconds = dice.choice((0.0, 5.0, 20.0, 40.0, 70.0))
    inner = Random(dice.getrandbits(32))
    if dice.random() < 0.5 or not strike.seconds:
        strike.meanwhile = lambda: m.world.tell(f"meanwhile: {user_actions.any_rule(m, inner)}")
    return f"{_reported(strike)} for {strike.seconds:.0f} s"


# -- periods of faults


def down(m: FaultRun, dice: Random) -> str:
    """Makes the table or the API unavailable for a while."""
    door, seconds = dice.choice((TABLE, API, API)), dice.choice((5.0, 20.0, 90.0))
    m.world.weather.down[door] = m.world.clock() + seconds
    return f"{door} down for {seconds:.0f} s"


def flaky(m: FaultRun, dice: Random) -> str:
    """Lets every third call fail for a while."""
    door, seconds = dice.choice((TABLE, API)), dice.choice((10.0, 60.0, 180.0))
    m.world.weather.flaky[door] = m.world.clock() + seconds
    return f"{door} flaky for {seconds:.0f} s"


def skew(m: FaultRun, dice: Random) -> str:
    """Sets the maximum error of clocks from now on."""
    m.world.weather.skew = dice.choice((0.0, 1.0, 5.0, 10.0))
    return f"clocks wrong by up to {m.world.weather.skew:.0f} s"


def bad_machines(m: FaultRun, dice: Random) -> str:
    """Makes the next instances of a group fail or come slowly."""
    name, kind = (
        dice.choice(sorted(GROUPS)),
        dice.choice(("never-joins", "provisioning-failure", "slow")),
    )
    count = dice.randint(1, 2)
    m.world.cluster.capi.fail_next(f"default/{name}", kind, count)
    return f"the next {count} machines of {name}: {kind}"


def vendor(m: FaultRun, dice: Random) -> str:
    """Lets something happen at the vendor of managed pools, or makes it unavailable."""
    assert m.own is not None
    if dice.random() < 0.8:
        return m.own.befall(dice)
    m.world.weather.flaky[VENDOR] = m.world.clock() + 60.0
    return "vendor flaky for 60 s"


def odd_pods(m: FaultRun, dice: Random) -> str:
    """Creates a Deployment of pods that only a managed pool has nodes for, maybe with a fault at
    one of the next calls."""
    said = user_actions.create(m, dice, (FAT, WIDE))
    if not said or dice.random() < 0.3:
        return said
    return f"{said}; {dice.choice((kill, kill, fail, lose, pause))(m, dice)}"


def silence(m: FaultRun, dice: Random) -> str:
    """Stops a kubelet's reports, or resumes those that stopped."""
    nodes = m.world.nodes()
    if m.silent or not nodes:
        for name in m.silent:
            m.world.cluster.kubelets.revive(name)
        m.silent.clear()
        return "all kubelets speak"
    name = dice.choice(nodes)
    m.silent.add(name)
    m.world.cluster.kubelets.silence(name)
    return f"the kubelet of {name} is silent"


def market(m: FaultRun, dice: Random) -> str:
    """Changes prices, and leaves time for a few passes: most of a replacement's story
    comes between other steps."""
    return f"{user_actions.reprice(m, dice)}; {_pass(m, dice.choice((60.0, 120.0, 180.0)))}"


def a_node(m: FaultRun, dice: Random) -> str:
    """Lets something happen to a node, and leaves time for it: it is acted on within minutes."""
    (rule,) = dice.choices(
        [rule for _, rule in node_events.RULES], [weight for weight, _ in node_events.RULES]
    )
    said = rule(m, dice)
    return f"{said}; {_pass(m, dice.choice((15.0, 30.0, 60.0, 75.0)))}" if said else ""


def a_mark(m: FaultRun, dice: Random) -> str:
    """Lets something happen to the marks of nodes."""
    (rule,) = dice.choices(
        [rule for _, rule in mark_events.RULES], [weight for weight, _ in mark_events.RULES]
    )
    return rule(m, dice)


def a_user(m: FaultRun, dice: Random) -> str:
    """Runs a user action."""
    return user_actions.any_rule(m, dice)


RULES: tuple[tuple[int, Rule], ...] = (
    (20, moment),
    (20, while_),
    (1, long_while),
    (2, tick_again),
    (3, out_of_order),
    (3, once_more),
    (3, trick),
    (5, kill),
    (3, fail),
    (3, lose),
    (6, pause),
    (1, down),
    (1, flaky),
    (1, skew),
    (4, bad_machines),
    (1, silence),
    (1, rubbish),
    (20, a_user),
)
"""How often each of them comes."""
CONSOLIDATING: tuple[tuple[int, Rule], ...] = ((8, market), (7, a_node))
"""Further ones of runs in which nodes are replaced, which needs some quiet."""

STEERING: tuple[tuple[int, Rule], ...] = ((16, a_mark), (20, while_))
"""Further ones of runs in which the scheduler is steered: a horizon takes many passes."""


MANAGED: tuple[tuple[int, Rule], ...] = ((6, odd_pods), (4, vendor))
"""Further ones of runs with managed pools."""


def any_step(m: FaultRun, dice: Random) -> str:
    """Runs any rule."""
    rules = (*RULES, *CONSOLIDATING) if m.consolidates else RULES
    rules = (*rules, *STEERING) if m.steers else rules
    rules = (*rules, *MANAGED) if m.own is not None else rules
    (rule,) = dice.choices([rule for _, rule in rules], [weight for weight, _ in rules])
    return rule(m, dice)
