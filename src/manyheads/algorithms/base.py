"""What an algorithm is: a frozen dataclass whose fields are its knobs, and the methods below."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Tensor
from torch.nn.functional import cross_entropy

from manyheads.client.client import Batch, Client, Plan
from manyheads.exchange.form import Form, Rest
from manyheads.exchange.snapshot import Snapshot


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


@dataclass(frozen=True)
class Sent:
    """What a table of predictions says, for an algorithm that exchanges tables."""

    form: Form
    embedding: bool
    rest: Rest = "spread"


@dataclass(frozen=True)
class Lesson:
    """Who taught a client on a public batch: for each sample and auxiliary head, the teacher and what it said."""

    teacher_BK: Tensor  # a client, the own index where it was its own head
    class_BK: Tensor


class Algorithm:
    """How clients learn from their private data and from each other. Without more: each alone, on private data."""

    teaches_heads: ClassVar[bool] = False  # whether there are auxiliary heads
    reads_public: ClassVar[bool] = False  # whether it trains on the public set
    needs_neighbours: ClassVar[bool] = False  # whether a client without neighbours is a mistake
    averages_weights: ClassVar[bool] = False  # whether neighbours must have the same model, and start from the same
    takes_means: ClassVar[bool] = False  # whether what a client collects ends up in one mean

    @property
    def pool_size(self) -> int:
        return 0

    @property
    def group_every(self) -> int | None:
        """Steps between two averagings within a group; None: the algorithm knows no groups."""
        return None

    @property
    def reads_public_labels(self) -> bool:
        """Whether it trains with the labels of the public set."""
        return False

    @property
    def compares_embeddings(self) -> bool:
        """Whether embeddings of different widths have to be mapped."""
        return False

    def sent(self, heads: int, classes: int) -> Sent | None:
        """What tables of predictions say; None where none are exchanged."""
        return None

    def window_rows(self, public_batch_size: int) -> int | None:
        """How many rows a client draws between two exchanges, where a table may hold only those; None: never."""
        return None

    def completed(self, classes: int) -> Self:
        """With the defaults that depend on the data."""
        return self

    def check(self, steps: int, classes: int) -> None:
        """Raise a ConfigurationError where the knobs do not fit a run of so many steps on so many classes."""

    def idle(self, classes: int) -> list[str]:
        """Keys that were given and have no effect beside the others."""
        return []

    def exchange_steps(self, steps: int) -> Sequence[int]:
        """Of a run of so many steps: before which of them clients exchange (`steps` itself: at the end)."""
        return range(0)

    def judged_after(self, steps: int) -> Mapping[int, str]:
        """Further steps at which clients are judged, and after what: FedMD's digest and revisit."""
        return {}

    def prepare(self, client: Client, step: int) -> None:
        """What a client does alone before an exchange."""

    def show(self, client: Client, step: int) -> Snapshot:
        """What a client shows those that ask."""
        return client.snapshot(step)

    def collect(self, client: Client, neighbours: Neighbours, step: int) -> list[Snapshot]:
        """Ask neighbours for what it needs; change nothing. At step 0, if that is one: what the client starts with."""
        return []

    def cost(self, client: Client, received: Sequence[Snapshot]) -> int:
        """Bytes that the client receives with what it collected: equal snapshots once, its own not at all."""
        sizes = [s.nbytes for s in {id(s): s for s in received}.values() if s.client != client.index]
        # Where it takes the mean over everybody, one is what it needs: a server, or an all-reduce, would bring it that.
        return max(sizes, default=0) if self.takes_means and len(sizes) == client.clients - 1 else sum(sizes)

    def apply(self, client: Client, received: list[Snapshot], step: int) -> None:
        """Take in what was collected, once all clients have collected."""

    def resumed(self, client: Client, step: int) -> None:
        """Put back what is not saved because it follows from the rest."""

    def plan(self, client: Client, start: int, stop: int) -> Plan:
        """Every draw and factor for steps start ... stop - 1, as arrays with a leading axis of steps."""
        return {}

    def losses(self, client: Client, batch: Batch, step: int) -> dict[str, Tensor]:
        """Named terms: they are recorded and summed as they are. Here: the private task, on the main head."""
        logits_BHC, _ = client.model(batch.private.images)
        return {"cross_entropy": cross_entropy(logits_BHC[:, 0], batch.labels)}

    def lesson(self, client: Client, batch: Batch) -> Lesson | None:
        """Who would teach the client on this batch; None where nobody is chosen."""
        return None
