"""What an algorithm is: a frozen dataclass whose fields are its knobs, and the methods below."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Protocol

from torch import Tensor

from manyheads.client import Batch, Client, Plan
from manyheads.snapshot import Snapshot


class Neighbours(Mapping[int, Snapshot]):
    """The clients that one client may ask; `neighbours[j]` gives a snapshot of j when asked, not before."""

    def __init__(self, members: tuple[int, ...], ask: Callable[[int], Snapshot]) -> None:
        self._members, self._ask = members, ask

    def __getitem__(self, client: int) -> Snapshot:
        if client not in self._members:
            raise KeyError(client)
        return self._ask(client)

    def __iter__(self) -> Iterator[int]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


class Algorithm(Protocol):
    """How clients learn from their private data and from each other."""

    distils: ClassVar[bool]  # whether it trains auxiliary heads and reads the public set
    needs_neighbours: ClassVar[bool]  # whether a client without neighbours is a mistake

    def __init__(self, **knobs: Any) -> None: ...

    def exchange_steps(self, steps: int) -> range:
        """Of a run of so many steps: before which of them clients exchange, at equal distances. May be empty."""

    @property
    def pool_size(self) -> int: ...

    def collect(self, client: Client, neighbours: Neighbours, step: int) -> list[Snapshot]:
        """Ask neighbours for what it needs; change nothing. At step 0, if that is one: what the client starts with."""

    def apply(self, client: Client, received: list[Snapshot], step: int) -> None:
        """Take in what was collected, once all clients have collected."""

    def plan(self, client: Client, start: int, stop: int) -> Plan:
        """Every draw and factor for steps start ... stop - 1, as arrays with a leading axis of steps."""

    def losses(self, client: Client, batch: Batch, step: int) -> dict[str, Tensor]:
        """Named terms: they are recorded and summed as they are."""
