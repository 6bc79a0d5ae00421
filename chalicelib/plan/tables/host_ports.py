"""Host ports that are taken on one node, found by port and protocol.

A pod may name hundreds of ports, and a node may hold hundreds of pods: comparing each with each is a product that one
tenant can make as large as it likes. Here a question costs one look-up for each port that is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chalicelib.model.pod import ANY_ADDRESS, HostPort


class HeldPorts:
    """A multiset of host ports: the same port may be there twice, on a node that is overcommitted."""

    def __init__(self, ports: Iterable[HostPort] = ()) -> None:
        self._addresses: dict[tuple[int, str], dict[str, int]] = {}
        self.add(ports)

    def __bool__(self) -> bool:
        return bool(self._addresses)

    def add(self, ports: Iterable[HostPort], count: int = 1) -> None:
        """Ports of so many pods more."""
        for port in ports:
            held = self._addresses.setdefault((port.port, port.protocol), {})
            held[port.address] = held.get(port.address, 0) + count

    def remove(self, ports: Iterable[HostPort], count: int = 1) -> None:
        """Ports of so many pods fewer; they must have been added."""
        for port in ports:
            held = self._addresses[(port.port, port.protocol)]
            held[port.address] -= count
            if held[port.address] <= 0:
                del held[port.address]
            if not held:
                del self._addresses[(port.port, port.protocol)]

    def clash(self, wanted: Sequence[HostPort]) -> HostPort | None:
        """The first wanted port that is taken: same port and protocol, and the same address or either every address."""
        for port in wanted:
            held = self._addresses.get((port.port, port.protocol))
            if held and (port.address == ANY_ADDRESS or port.address in held or ANY_ADDRESS in held):
                return port
        return None


class PortRivals:
    """Which classes ask for a port that a class asks for. Asked once per class and pass."""

    def __init__(self, ports: Sequence[Sequence[HostPort]]) -> None:
        """ports: of every class."""
        self._ports = ports
        self._by_port: dict[tuple[int, str], list[tuple[int, str]]] | None = None
        self._known: dict[int, frozenset[int]] = {}

    def of(self, cls: int) -> frozenset[int]:
        """The classes, itself included, of which no pod can be on a node with one of this class."""
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
