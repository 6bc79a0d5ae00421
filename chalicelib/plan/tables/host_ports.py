"""Host ports in use on one node, indexed by port and protocol.

A pod may name hundreds of ports, and a node may run hundreds of pods. Comparing every pair would let one tenant make a
pass arbitrarily slow; here a check costs one look-up per requested port.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chalicelib.model.pod import ANY_ADDRESS, HostPort


class HeldPorts:
    """A multiset of host ports: the same port may occur twice, on an overcommitted node."""

    def __init__(self, ports: Iterable[HostPort] = ()) -> None:
        self._addresses: dict[tuple[int, str], dict[str, int]] = {}
        self.add(ports)

    def __bool__(self) -> bool:
        return bool(self._addresses)

    def add(self, ports: Iterable[HostPort], count: int = 1) -> None:
        """Add the ports of `count` pods."""
        for port in ports:
            held = self._addresses.setdefault((port.port, port.protocol), {})
            held[port.address] = held.get(port.address, 0) + count

    def remove(self, ports: Iterable[HostPort], count: int = 1) -> None:
        """Remove the ports of `count` pods that were added before."""
        for port in ports:
            held = self._addresses[(port.port, port.protocol)]
            held[port.address] -= count
            if held[port.address] <= 0:
                del held[port.address]
            if not held:
                del self._addresses[(port.port, port.protocol)]

    def clash(self, wanted: Sequence[HostPort]) -> HostPort | None:
        """Return the first requested port in use: same port and protocol, and the same address or one of the two covers
        all addresses."""
        for port in wanted:
            held = self._addresses.get((port.port, port.protocol))
            if held and (port.address == ANY_ADDRESS or port.address in held or ANY_ADDRESS in held):
                return port
        return None


class PortRivals:
    """Finds the classes that request a port that a class requests, computed once per class and pass."""

    def __init__(self, ports: Sequence[Sequence[HostPort]]) -> None:
        """ports: the host ports of every class."""
        self._ports = ports
        self._by_port: dict[tuple[int, str], list[tuple[int, str]]] | None = None
        self._known: dict[int, frozenset[int]] = {}

    def of(self, cls: int) -> frozenset[int]:
        """Return the classes, including this one, whose pods cannot share a node with a pod of this class."""
        found = self._known.get(cls)
        if found is None:
            found = self._known[cls] = frozenset(
                other
                for port in self._ports[cls]
                for other, address in self._asking(port)
                if port.address == address or ANY_ADDRESS in (port.address, address)
            )
        return found

    def _asking(self, port: HostPort) -> Sequence[tuple[int, str]]:
        if self._by_port is None:
            self._by_port = {}
            for cls, ports in enumerate(self._ports):
                for each in ports:
                    self._by_port.setdefault((each.port, each.protocol), []).append((cls, each.address))
        return self._by_port[(port.port, port.protocol)]
