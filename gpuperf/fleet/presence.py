"""Check that every expected host is there once, as itself, and under the same conditions.

The checks come before any time is compared: a missing host is a fault of the result, and hosts with
other drivers, clock limits or versions have no common time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from gpuperf.errors import UsageError
from gpuperf.fleet.collection import Collection
from gpuperf.fleet.shard import Fact, Shard
from gpuperf.model.codec import to_builtins
from gpuperf.model.text import shorten

Kind = Literal["missing", "unexpected", "doubled", "broken", "identity", "stale", "differs"]
MOST_NAMED = 5  # hosts that a sentence names
CASES = "cases"  # the fact that no option allows to differ
UNEQUAL: Kind = "differs"  # the kind of the faults for which times cannot be compared
# Facts of the live machine, which differ between hosts of one fleet.
VARYING = frozenset({"temperature_c", "other_processes"})


@dataclass(frozen=True)
class Fault:
    """Something that keeps the result from passing: its kind, the host, and a sentence."""

    kind: Kind
    host: str
    message: str


def faults_of(collection: Collection, allowed: Sequence[str], one_machine: bool) -> list[Fault]:
    """Return every fault of *collection*: completeness, identity, then differing conditions.

    Differences of the facts *allowed* are no fault, and with *one_machine* several hosts may be
    one machine. Raises: UsageError for an unknown fact of *allowed*.
    """
    faults = [*_completeness(collection), *_doubled(collection)]
    faults += _identity(collection, one_machine)
    sound = sound_shards(collection, faults)  # an intruder must not keep the others from judging
    alone = [shard for shard in sound if not shard.head.peer]
    pairs = [shard for shard in sound if shard.head.peer]
    faults += differences(alone, allowed if alone else ())
    return [*faults, *differences(pairs, () if alone else allowed)]


def sound_shards(collection: Collection, faults: Sequence[Fault]) -> tuple[Shard, ...]:
    """Return the shards of hosts that can be judged: expected, there once, and themselves."""
    unsound = {f.host for f in faults if f.kind in ("unexpected", "doubled", "identity", "stale")}
    return tuple(shard for shard in collection.shards if shard.head.host not in unsound)


def _completeness(collection: Collection) -> Iterator[Fault]:
    assert collection.expected is not None
    for broken in collection.broken:
        yield Fault("broken", broken.host, broken.reason)
    there = {shard.head.host for shard in collection.shards}
    alone = {shard.head.host for shard in collection.shards if not shard.head.peer}
    wanted = set(collection.expected.hosts)
    # Shards of pairs alone are complete by their pairs, which `judge_pairs` checks.
    for host in sorted(wanted - alone) if alone or not there else ():
        yield Fault("missing", host, f"{host} has no whole shard")
    there |= {shard.head.peer for shard in collection.shards if shard.head.peer}
    for host in sorted(there - wanted):
        yield Fault("unexpected", host, f"{host} is not a host of the fleet that is expected")
    yield from _stale(collection, collection.expected.fleet)


def _stale(collection: Collection, ours: str) -> Iterator[Fault]:
    """Yield the shards that belong to another fleet run than *ours*, or than most others."""
    if len(collection.fleets) > 1:
        names = shorten(", ".join(collection.fleets[:MOST_NAMED]), 300)
        yield Fault("stale", "", f"the files come from several fleet runs: {names}")
    runs = Counter(shard.head.fleet for shard in collection.shards)
    usual = ours or max(runs, key=lambda run: (runs[run], run), default="")
    for shard in collection.shards:
        if shard.head.fleet != usual:
            host, other = shard.head.host, shard.head.fleet or "no fleet run"
            message = f"the shard of {host} is of {other}, and not of {usual or 'no fleet run'}"
            yield Fault("stale", host, shorten(message, 300))


def _doubled(collection: Collection) -> Iterator[Fault]:
    ends = ((shard.head.host, shard.head.peer) for shard in collection.shards)
    pairs = Counter((min(a, b), max(a, b)) if b else (a, b) for a, b in ends)
    for (host, peer), count in sorted(pairs.items()):
        if count > 1:
            whose = _with_peer(host, peer)
            machines = {s.head.machine for s in collection.shards if s.head.host == host}
            from_where = f", of {len(machines)} machines" if len(machines) > 1 else ""
            yield Fault("doubled", host, f"{whose} has {count} different shards{from_where}")


def _identity(collection: Collection, one_machine: bool) -> Iterator[Fault]:
    """Yield the hosts that report the name of another host, or are the same machine as another."""
    assert collection.expected is not None
    hosts = {_short(host): host for host in collection.expected.hosts}
    by_machine: dict[str, set[str]] = {}
    for head in (shard.head for shard in collection.shards):
        by_machine.setdefault(head.machine, set()).add(head.host)
        other = hosts.get(_short(head.hostname))
        if other is not None and _short(other) != _short(head.host) and not one_machine:
            yield Fault("identity", head.host, f"{head.host} reports the name of {other}")
    for same in by_machine.values():
        if len(same) > 1 and not one_machine:
            names = _named(sorted(same))
            for host in sorted(same):
                yield Fault("identity", host, f"{names} are one machine, which measured for all")


def _label(shard: Shard) -> str:
    return _with_peer(shard.head.host, shard.head.peer)


def _with_peer(host: str, peer: str) -> str:
    return f"{host} with {peer}" if peer else host


def _short(host: str) -> str:
    """Return the first label of a name, in lower case; an IPv4 address is kept whole."""
    return host if host.replace(".", "").isdigit() else host.partition(".")[0].lower()


def differences(shards: Sequence[Shard], allowed: Sequence[str]) -> Iterator[Fault]:
    """Yield a fault for each fact in which hosts differ, with the hosts of the rarer values."""
    facts = {_label(shard): _facts_of(shard) for shard in shards}
    names = sorted({name for each in facts.values() for name in each})
    for name in allowed:
        if shards and name not in set(names) - {CASES}:
            raise UsageError(
                f"--allow names {name[:80]!r}, and these shards have no such fact",
                f"known: {', '.join(names)}",
            )
    for name in names:
        values = {host: each.get(name) for host, each in facts.items()}
        if name in allowed or len(set(values.values())) < 2:
            continue
        usual = Counter(values.values()).most_common(1)[0][0]
        by_value: dict[str | None, list[str]] = {}
        for host, value in sorted(values.items()):
            by_value.setdefault(value, []).append(host)
        others = [value for value in by_value if value != usual]
        for value in sorted(others, key=str):
            hosts = by_value[value]
            verb = "has" if len(hosts) == 1 else "have"
            message = f"{_named(hosts)} {verb} {name} {_text(value)}, most have {_text(usual)}"
            yield Fault(UNEQUAL, hosts[0] if len(hosts) == 1 else "", message)


def _facts_of(shard: Shard) -> Mapping[str, str]:
    """Return the facts that all hosts must share, as texts."""
    head = shard.head
    cases = sha256("\n".join(sorted(shard.cases)).encode(errors="replace")).hexdigest()
    facts: dict[str, object] = {
        CASES: f"{len(shard.cases)}, checksum {cases[:8]}",
        "gpuperf": head.gpuperf,
        "suite": f"{head.suite} {head.suite_hash[:12]}",
        "processes": head.processes,
        "devices": len(head.devices),
    }
    facts |= {f"contract {k}": v for k, v in to_builtins(head.contract).items()}
    shared: dict[str, set[Fact]] = {}
    for device in head.devices:
        for name, value in {**device.hard, **device.soft}.items():
            if name not in VARYING:
                shared.setdefault(name, set()).add(value)
    for name, values in shared.items():
        facts[name] = " and ".join(sorted(map(str, values)))
    return {name: str(value) for name, value in facts.items()}


def _named(hosts: Sequence[str]) -> str:
    """Write `a, b and c`, or `a, b and 40 more`."""
    if len(hosts) > MOST_NAMED:
        return f"{', '.join(hosts[:3])} and {len(hosts) - 3} more"
    return " and ".join(filter(None, (", ".join(hosts[:-1]), hosts[-1])))


def _text(value: object) -> str:
    return shorten(str(value), 80) if value is not None else "no value"
