"""What an algorithm is: a frozen dataclass whose fields are its knobs, and the methods below."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from torch import Tensor
from torch.nn.functional import cross_entropy

from manyheads.client.client import Batch, Client
from manyheads.client.plan import WindowPlan
from manyheads.config.experiment import TrainingConfig
from manyheads.exchange.confidence import Confidence
from manyheads.exchange.named_confidences import CONFIDENCES
from manyheads.exchange.request import PublicRows
from manyheads.exchange.row_format import Rest, RowFormat
from manyheads.exchange.snapshot import Snapshot
from manyheads.imports import Trust


class Neighbours(Mapping[int, Snapshot]):
    """The clients that one may ask; `neighbours[j]` stands for what j shows, which nobody reads before `apply`."""

    def __init__(self, members: tuple[int, ...], ask: Callable[..., Snapshot]) -> None:
        self._members, self._ask = members, ask

    def __getitem__(self, client: int) -> Snapshot:
        return self.ask(client)

    def ask(
        self, client: int, rows: PublicRows | None = None, *, step: int | None = None, keep: bool = False
    ) -> Snapshot:
        """Ask about some public rows (None: all), as of an earlier step where one is given.

        With `keep` the owner keeps that snapshot, to be asked about again: until an exchange at which it is not asked.
        """
        if client not in self._members:
            raise KeyError(client)
        return self._ask(client, rows, step, keep)

    def ask_self(self, rows: PublicRows | None = None) -> Snapshot:
        """Ask the client itself, as others would."""
        return self._ask(None, rows, None, False)

    def __iter__(self) -> Iterator[int]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


@dataclass(frozen=True)
class TableContents:
    """What a table of predictions says, for an algorithm that exchanges tables."""

    form: RowFormat
    embedding: bool
    rest: Rest = "spread"


@dataclass(frozen=True)
class Lesson:
    """Who taught a client on a public batch: for each sample and auxiliary head, the teacher and what it said."""

    teacher_BK: Tensor  # a client, the own index where it was its own head
    class_BK: Tensor


Sends = Literal["nothing", "weights", "predictions", "averaging"]


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
        """Steps between two averagings within a group; None: the algorithm has no groups."""
        return None

    @property
    def reads_public_labels(self) -> bool:
        """Whether it trains with the labels of the public set."""
        return False

    @property
    def compares_embeddings(self) -> bool:
        """Whether embeddings of different widths have to be mapped."""
        return False

    def check_code(self, trust: Trust) -> None:
        """Raise where the knobs name code that must not be imported, or that there is not."""

    @property
    def measure(self) -> Confidence:
        """How sure a head is, for those that compare teachers."""
        return CONFIDENCES["max_probability"]

    @property
    def targets(self) -> int:
        """How many snapshots of the pool teach in a step, at most."""
        return 0

    def tables(self, heads: int, classes: int) -> TableContents | None:
        """What tables of predictions say; None where checkpoints are exchanged."""
        return None

    def window_rows(self, public_batch_size: int) -> int | None:
        """How many rows a client draws between two exchanges, where a table may hold only those; None: never."""
        return None

    @property
    def sends(self) -> Sends:
        """What clients send each other."""
        return "nothing"

    def samples_per_step(self, training: TrainingConfig) -> float:
        """How many samples pass through a model in a client's step; a pass back costs as much as two."""
        return 3.0 * training.batch_size

    def tried_in(self, steps: int) -> Mapping[str, object]:
        """Knobs with which a run of so few steps has everything in it that a long one has."""
        return {}

    def in_little_memory(self) -> Mapping[str, object]:
        """Knobs with which a step takes as long and needs less memory."""
        return {}

    def lighter(self, classes: int) -> Mapping[str, Mapping[str, object]]:
        """Knobs with which less and less is sent, by the name of what that is; empty where there is no choice."""
        return {}

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

    def collect(self, client: Client, neighbours: Neighbours, step: int) -> list[Snapshot]:
        """Ask neighbours for what it needs; change nothing. At step 0, if that is one: what the client starts with."""
        return []

    def cost(self, client: Client, received: Sequence[Snapshot]) -> int:
        """Bytes that the client receives with what it collected: equal snapshots once, its own not at all."""
        sizes = [s.nbytes for s in {id(s): s for s in received}.values() if s.client != client.index]
        # Where it takes the mean over everybody, one is what it needs: a server, or an all-reduce, would bring it that.
        return max(sizes, default=0) if self.takes_means and len(sizes) == client.clients - 1 else sum(sizes)

    def apply(self, client: Client, received: list[Snapshot], step: int) -> None:
        """Take in what was collected, once all clients have collected: into the pool, if there is one."""
        for snapshot in received if client.pool.size else ():
            client.pool.add(snapshot, client.seed, client.index, step)

    def ask_again(self, client: Client, neighbours: Neighbours, step: int) -> list[Snapshot]:
        """Ask for what the pool needs at `step` and a save does not hold, because owners keep it."""
        return []

    def memory_fits(self, client: Client, step: int) -> bool:
        """Whether what a save at `step` holds of `client.memory` is what this algorithm keeps there."""
        return True

    def plan(self, client: Client, start: int, stop: int) -> WindowPlan:
        """Every draw and factor for steps start ... stop - 1."""
        return WindowPlan()

    def losses(self, client: Client, batch: Batch, step: int) -> dict[str, Tensor]:
        """Named terms: they are recorded and summed as they are. Here: the private task, on the main head."""
        logits_BHC, _ = client.model(batch.private.images)
        return {"cross_entropy": cross_entropy(logits_BHC[:, 0], batch.labels)}

    def lesson(self, client: Client, batch: Batch) -> Lesson | None:
        """Who would teach the client on this batch; None where nobody is chosen."""
        return None
