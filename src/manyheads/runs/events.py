"""The events of a run, which are the lines of metrics.jsonl."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, TypeAdapter, model_validator

from manyheads.runs.stored import (
    FORMAT,
    Accuracy,
    ByHead,
    Collapse,
    Count,
    Finite,
    Hops,
    NonNegative,
    Stored,
    check_below,
    check_shape,
    for_private_task,
)


class _Happened(Stored):
    event: str
    step: Count
    seconds: NonNegative = 0.0  # since the run began


class StartEvent(_Happened):
    """The first line: the clients and their data, the engine and the device."""

    event: Literal["start"] = "start"
    step: Count = 0
    format: Count = FORMAT
    what: str | None = None
    exchanges: bool = True
    engine: Annotated[str, Field(pattern=r"^[a-z_]{1,20}$")] = "plain"
    device: Annotated[str, Field(pattern=r"^(cpu|cuda(:[0-9]{1,3})?)$")] = "cpu"
    precision: Literal["bf16", "tf32", "float32"] = "float32"
    label_counts: list[list[Count]]  # clients x classes: private samples
    primary_labels: list[list[Count]]
    public_samples: Count | None = None
    validation_samples: Count | None = None
    test_samples: Count | None = None
    class_names: list[str]
    client_names: Annotated[list[str], Field(min_length=1)]
    notes: list[str] = Field(default_factory=list)
    parameters: list[Count] | None = None
    flops: list[Count] | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        check_shape("label_counts", self.label_counts, self.clients, len(self.class_names))
        check_shape("primary_labels", self.primary_labels, self.clients)
        for labels in self.primary_labels:
            check_below("primary_labels", labels, len(self.class_names))
        return self

    @property
    def clients(self) -> int:
        return len(self.client_names)


class LossesEvent(_Happened):
    """The terms of the loss, each a mean over the steps of a window, by client."""

    event: Literal["losses"] = "losses"
    learning_rate: Finite | None = None
    losses: Annotated[dict[str, Annotated[list[Finite], Field(min_length=1)]], Field(min_length=1)]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for term, by_client in self.losses.items():
            check_shape(f'losses "{term}"', by_client, self.clients)
        return self

    @property
    def clients(self) -> int:
        return len(next(iter(self.losses.values())))


class EvaluationEvent(_Happened):
    """The accuracies of all clients on the validation part or on the test set: clients x heads."""

    event: Literal["evaluation"] = "evaluation"
    part: Literal["validation", "test"]
    after: str | None = None  # the state in which the algorithm is evaluated, if it has several
    private_accuracy: Annotated[list[ByHead], Field(min_length=1)]
    private_with_prior: list[ByHead] | None = None  # where clients' priors are added to the logits; None: not balanced
    shared_accuracy: list[ByHead]
    # Mean over pairs of clients, by hops from the owner of the data to the evaluated client; "none": there is no path.
    by_hop: dict[Hops, ByHead] | None = None
    collapsed: list[Collapse] = Field(default_factory=list)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        heads = len(self.private_accuracy[0])
        check_shape("private_accuracy", self.private_accuracy, self.clients, heads)
        check_shape("private_with_prior", self.private_with_prior or self.private_accuracy, self.clients, heads)
        check_shape("shared_accuracy", self.shared_accuracy, self.clients, heads)
        for by_head in (self.by_hop or {}).values():
            check_shape("by_hop", by_head, heads)
        for client, head, _ in self.collapsed:
            check_below("collapsed", [client], self.clients)
            check_below("collapsed", [head], heads)
        return self

    @property
    def clients(self) -> int:
        return len(self.private_accuracy)

    @property
    def private_task(self) -> list[ByHead]:
        """The accuracies at the private task: with clients' priors if there are any."""
        return for_private_task(self.private_accuracy, self.private_with_prior)


class TaughtCounts(Stored):
    """Counts of who taught, on some samples of the public set, whose labels training does not use."""

    step: Count
    own: list[Count]  # by auxiliary head: samples that students' own heads taught, summed over students
    own_right: list[Count] | None = None  # how many of them correctly; None if the labels are unknown
    others: list[list[Count]]  # auxiliary heads x teachers: samples that a client taught others
    others_right: list[list[Count]] | None = None
    chosen_by_class: list[list[Count]] | None = None  # teachers x classes: sums over students and heads, own included
    right_by_class: list[list[Count]] | None = None
    # By auxiliary head: samples on which the teacher was wrong and another candidate was right; None if unknown.
    missed: list[Count] | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        heads, teachers = len(self.own), len(self.others[0]) if self.others else 0
        check_shape("others", self.others, heads, teachers)
        if self.missed is not None:
            check_shape("missed", self.missed, heads)
        if self.own_right is None:
            return self
        if self.others_right is None or self.chosen_by_class is None or self.right_by_class is None:
            raise ValueError("says for some teachers how often they were right, but not for all")
        check_shape("own_right", self.own_right, heads)
        check_shape("others_right", self.others_right, heads, teachers)
        classes = len(self.chosen_by_class[0]) if self.chosen_by_class else 0
        for table in (self.chosen_by_class, self.right_by_class):
            check_shape("by class", table, teachers if heads else len(table), classes)
        return self


class TaughtEvent(TaughtCounts, _Happened):
    """Counts of who taught since the last exchange."""

    event: Literal["taught"] = "taught"

    @property
    def clients(self) -> int | None:
        return len(self.others[0]) if self.others else None


class ProbeEvent(_Happened):
    """The shared accuracy of a fresh linear head on each client's frozen embedding."""

    event: Literal["probe"] = "probe"
    shared_accuracy: Annotated[list[Accuracy], Field(min_length=1)]

    @property
    def clients(self) -> int:
        return len(self.shared_accuracy)


Event = StartEvent | LossesEvent | EvaluationEvent | TaughtEvent | ProbeEvent
ANY_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])


def on_test_set(events: Sequence[Event]) -> list[EvaluationEvent]:
    """Return the last evaluation on the test set of each step."""
    found = {e.step: e for e in events if isinstance(e, EvaluationEvent) and e.part == "test"}
    return [found[step] for step in sorted(found)]


def judged_after(events: Sequence[Event]) -> dict[str, EvaluationEvent]:
    """Return the last evaluation on the test set of each state of the algorithm."""
    found = [e for e in events if isinstance(e, EvaluationEvent) and e.part == "test"]
    return {e.after: e for e in found if e.after is not None}
