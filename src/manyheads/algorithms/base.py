"""The base class of algorithms: frozen dataclasses whose fields are their knobs, with the methods below."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from torch import Tensor

from manyheads.client.client import Batch, Client
from manyheads.client.plan import WindowPlan
from manyheads.config.experiment import TrainingConfig
from manyheads.config.knobs import RunSize
from manyheads.config.types import Rest
from manyheads.exchange.confidence import Confidence
from manyheads.exchange.named_confidences import CONFIDENCES
from manyheads.exchange.request import PublicRows
from manyheads.exchange.row_format import RowFormat
from manyheads.exchange.snapshot import Snapshot
from manyheads.imports import Trust


class Neighbours(Mapping[int, Snapshot]):
    """The clients that one may ask; `neighbours[j]` promises a snapshot of j, which nobody reads before `apply`."""

    def __init__(self, members: tuple[int, ...], ask: Callable[..., Snapshot]) -> None:
        self._members, self._ask = members, ask

    def __getitem__(self, client: int) -> Snapshot:
        return self.ask(client)

    def ask(
        self, client: int, rows: PublicRows | None = None, *, step: int | None = None, keep: bool = False
    ) -> Snapshot:
        """Ask for a snapshot about some public rows (None: all), perhaps as of an earlier step.

        With `keep` the owner keeps that snapshot, so that it can be asked about again at the next exchange.
        """
        if client not in self._members:
            raise KeyError(client)
        return self._ask(client, rows, step, keep)

    def ask_self(self, rows: PublicRows | None = None) -> Snapshot:
        """Ask the client itself as others would."""
        return self._ask(None, rows, None, False)

    def __iter__(self) -> Iterator[int]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


@dataclass(frozen=True)
class TableContents:
    """The contents of a table of predictions, for an algorithm that exchanges tables."""

    form: RowFormat
    embedding: bool
    rest: Rest = "spread"


@dataclass(frozen=True)
class TeacherChoices:
    """The teachers of a client on a public batch: for each sample and auxiliary head, who taught which class."""

    teacher_BK: Tensor  # a client; its own index if its own head was chosen
    class_BK: Tensor  # the most likely class by that teacher
    # The most likely class by each candidate, -1 where it does not cover the sample; None: missed ones are not counted.
    candidate_class_JBK: Tensor | None = None


Sends = Literal["nothing", "weights", "predictions", "averaging"]


class Algorithm:
    """The way in which clients learn from private data and from each other. By default: each alone, on private data.

    Most algorithms write three methods, `collect`, `apply` and `losses` (docs/adding.md).

    >>> class Momentum(Algorithm):
    ...     "Averaging at every tenth step."
    ...     needs_neighbours = averages_weights = True
    ...
    ...     def exchange_steps(self, steps):
    ...         return range(10, steps, 10)
    >>> list(Momentum().exchange_steps(35)), Momentum().pool_size
    ([10, 20, 30], 0)
    """

    has_auxiliary_heads: ClassVar[bool] = False
    reads_public: ClassVar[bool] = False  # whether it trains on the public set
    needs_neighbours: ClassVar[bool] = False  # whether a client without neighbours is a mistake
    averages_weights: ClassVar[bool] = False  # whether neighbours must have the same model and first weights
    takes_means: ClassVar[bool] = False  # whether all that a client collects ends up in one mean

    @property
    def pool_size(self) -> int | None:
        """The number of snapshots in a client's pool; None: without defaults that depend on the run."""
        return 0

    @property
    def group_every(self) -> int | None:
        """Steps between two averagings within a group; None: the algorithm has no groups."""
        return None

    @property
    def reads_public_labels(self) -> bool:
        """True if it trains with the labels of the public set."""
        return False

    @property
    def measures_with_public_labels(self) -> bool:
        """True if it reads the labels of the public set, but to measure only: its models are for nothing else."""
        return False

    @property
    def compares_embeddings(self) -> bool:
        """True if it compares embeddings, so that those of different widths have to be mapped."""
        return False

    def check_code(self, trust: Trust) -> None:
        """Raise if a knob names code that does not exist or must not be imported."""

    @property
    def teacher_confidence(self) -> Confidence:
        """The confidence by which teachers are compared."""
        return CONFIDENCES["max_probability"]

    @property
    def teachers_per_step(self) -> int:
        """The largest number of snapshots of the pool that teach in a step."""
        return 0

    def table_contents(self, heads: int, classes: int) -> TableContents | None:
        """Return the contents of tables of predictions, or None if checkpoints are exchanged."""
        return None

    def remembered_bytes(self, public_samples: int, heads: int, classes: int) -> int:
        """Return how many bytes about public samples a client keeps from step to step; the knob `remember` decides."""
        return 0

    def kept_about_others_bytes(self, public_samples: int, clients: int) -> int:
        """Return how many bytes a client keeps about what others said of public samples; the knob `ask` decides."""
        return 0

    def rows_per_exchange(self, public_batch_size: int) -> int | None:
        """Return how many rows a client draws between two exchanges, if tables may hold only these; None: never."""
        return None

    @property
    def sends(self) -> Sends:
        """The kind of content that clients send each other."""
        return "nothing"

    def samples_per_step(self, training: TrainingConfig) -> float:
        """Return how many samples pass through a model in a client's step; a backward pass counts as two."""
        return 3.0 * training.batch_size

    def knobs_for_trial(self, steps: int) -> Mapping[str, object]:
        """Return knobs with which a run of so few steps does everything that a long one does."""
        return {}

    def knobs_for_little_memory(self) -> Mapping[str, object]:
        """Return knobs with which a step takes as long and needs less memory."""
        return {}

    def knobs_sending_less(self, classes: int) -> Mapping[str, Mapping[str, object]]:
        """Return knobs by the name of what is then sent, less and less; empty if there is no choice."""
        return {}

    def with_defaults(self, size: RunSize) -> Self:
        """Return the algorithm with the defaults that depend on the run."""
        return self

    def check(self, steps: int, classes: int) -> None:
        """Raise a ConfigurationError if the knobs do not fit a run of so many steps on so many classes."""

    def idle_keys(self, classes: int) -> list[str]:
        """Return the keys that were given but have no effect because of others."""
        return []

    def exchange_steps(self, steps: int) -> Sequence[int]:
        """Return the steps of a run before which clients exchange (`steps` itself: at the end)."""
        return range(0)

    def extra_evaluations(self, steps: int) -> Mapping[int, str]:
        """Return further steps at which to evaluate, with a name for each: FedMD's digest and revisit."""
        return {}

    def prepare(self, client: Client, step: int) -> None:
        """Prepare a client, alone, for an exchange."""

    def collect(self, client: Client, neighbours: Neighbours, step: int) -> list[Snapshot]:
        """Ask neighbours for what the client needs; change nothing. An exchange at step 0 is what it starts with."""
        return []

    def received_bytes(self, client: Client, received: Sequence[Snapshot]) -> int:
        """Return the bytes of what the client collected: equal snapshots once, its own not at all."""
        sizes = [s.nbytes for s in {id(s): s for s in received}.values() if s.client != client.index]
        # For a mean over everybody one snapshot is enough: a server, or an all-reduce, would send just that.
        return max(sizes, default=0) if self.takes_means and len(sizes) == client.clients - 1 else sum(sizes)

    def apply(self, client: Client, received: list[Snapshot], step: int) -> None:
        """Take in what was collected, after all clients have collected: into the pool, if there is one."""
        for snapshot in received if client.pool.size else ():
            client.pool.add(snapshot, client.seed, client.index, step)

    def ask_again(self, client: Client, neighbours: Neighbours, step: int) -> list[Snapshot]:
        """Ask for what the pool needs at `step` and a save lacks because owners keep it."""
        return []

    def memory_fits(self, client: Client, step: int) -> bool:
        """Tell whether `client.memory`, from a save at `step`, holds what this algorithm keeps there."""
        return True

    def plan(self, client: Client, start: int, stop: int) -> WindowPlan:
        """Make every draw and factor for steps start ... stop - 1."""
        return WindowPlan()

    def losses(self, client: Client, batch: Batch, step: int) -> dict[str, Tensor]:
        """Return named terms, which are recorded and summed as they are; by default the main head's private task."""
        logits_BHC, _ = client.model(batch.private.images)
        return {"cross_entropy": client.private_loss(logits_BHC[:, 0], batch.labels)}

    def teacher_choices(self, client: Client, batch: Batch) -> TeacherChoices | None:
        """Return who would teach the client on this batch, or None if nobody is chosen."""
        return None
