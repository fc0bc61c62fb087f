"""The summary of a finished run: the contents of summary.json, which grows linearly with the number of clients."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from manyheads.runs.events import TaughtCounts
from manyheads.runs.stored import (
    FORMAT,
    Accuracy,
    ByHead,
    Collapse,
    Count,
    Hops,
    NonNegative,
    Stored,
    Width,
    check_below,
    check_shape,
    for_private_task,
)


class Accuracies(Stored):
    """Accuracies by head, as fractions: those of one client, or means over clients."""

    private_accuracy: ByHead
    private_with_prior: ByHead | None = None  # where the client's prior is added to the logits; None: not balanced
    shared_accuracy: ByHead

    @property
    def private_task(self) -> ByHead:
        """The accuracy at the private task: with the prior if there is one."""
        return for_private_task(self.private_accuracy, self.private_with_prior)


class Deploy(Stored):
    """The head to use for each task, chosen on validation data."""

    private: Count
    shared: Count
    prior: bool = False  # for the private task, the client's prior is added to that head's logits


class ClientSummary(Stored):
    """A client at the end of a run."""

    name: str
    backbone: str | None = None
    width: Width | None = None
    embedding_width: Width | None = None
    maps: list[Width] = Field(default_factory=list)  # widths of others' embeddings that it maps its own to
    parameters: Count | None = None
    flops: Count | None = None
    samples: Count
    primary_labels: list[Count]
    private_accuracy: ByHead
    private_with_prior: ByHead | None = None
    shared_accuracy: ByHead
    validation: Accuracies | None = None
    bytes_received: Count | None = None
    refused: Count = 0  # others' answers that could not be used
    deploy: Deploy | None = None

    @property
    def private_task(self) -> ByHead:
        """The accuracy at the private task: with the prior if there is one."""
        return for_private_task(self.private_accuracy, self.private_with_prior)


class Summary(Stored):
    """The result of a run. Accuracies are fractions; lists run over heads, and are means over clients.

    Values are attributes, `summary.shared_accuracy`, and can also be read as from a dict: `summary["shared_accuracy"]`.
    """

    format: Count = FORMAT
    algorithm: str
    graph: str | None = None
    groups: list[list[Count]] = Field(default_factory=list)
    seed: Annotated[int, Field(ge=0)]
    version: str  # of manyheads
    torch: str | None = None
    engine: str | None = None
    device: str | None = None
    precision: str | None = None
    data: str
    classes: Annotated[list[str], Field(min_length=1)]
    image_shape: Annotated[list[Annotated[int, Field(ge=1, le=2**16)]], Field(min_length=3, max_length=3)]
    steps: Count
    seconds: NonNegative
    client_steps_per_second: NonNegative = 0.0
    private_accuracy: ByHead
    private_with_prior: ByHead | None = None
    shared_accuracy: ByHead
    validation: Accuracies | None = None
    deploy: Deploy | None
    collapsed: list[Collapse] = Field(default_factory=list)
    by_hop: dict[Hops, ByHead] | None = None
    after: dict[str, Accuracies] = Field(default_factory=dict)  # by state, if the algorithm has several
    taught: TaughtCounts | None = None
    probe: list[Accuracy] | None = None
    exchange: str | None = None
    bytes_received: list[Count]  # by client
    bytes_received_total: Count | None = None
    clients: Annotated[list[ClientSummary], Field(min_length=1)]
    time: dict[str, NonNegative] = Field(default_factory=dict)  # where the seconds went

    @property
    def private_task(self) -> ByHead:
        """The accuracy at the private task: with clients' priors if there are any."""
        return for_private_task(self.private_accuracy, self.private_with_prior)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        clients, heads, classes = len(self.clients), len(self.private_accuracy), len(self.classes)
        for name in ("bytes_received", "probe"):
            check_shape(name, self[name] if self[name] is not None else [0] * clients, clients)
        judged: list[Summary | ClientSummary] = [self, *self.clients]
        for state in self.after.values():
            _check_heads(state, len(state.private_accuracy))
        for own in judged:
            _check_heads(own, heads)
            _check_heads(own.validation, heads)
            if own.deploy is not None:
                check_below("deploy", [own.deploy.private, own.deploy.shared], heads)
        for by_head in (self.by_hop or {}).values():
            check_shape("by_hop", by_head, heads)
        for client in self.clients:
            check_below("primary_labels", client.primary_labels, classes)
        for found in self.collapsed:
            for number, end in zip(found, (clients, heads, classes), strict=True):
                check_below("collapsed", [number], end)
        self._check_taught(clients, classes)
        return self

    def _check_taught(self, clients: int, classes: int) -> None:
        taught = self.taught
        if taught is None:
            return
        for by_teacher in taught.others:
            check_shape("taught.others", by_teacher, clients)
        if taught.chosen_by_class is not None:
            check_shape("taught.chosen_by_class", taught.chosen_by_class, clients, classes)


Judged = Summary | ClientSummary | Accuracies


def _check_heads(judged: Judged | None, heads: int) -> None:
    if judged is not None:
        check_shape("private_accuracy", judged.private_accuracy, heads)
        check_shape("private_with_prior", judged.private_with_prior or judged.private_accuracy, heads)
        check_shape("shared_accuracy", judged.shared_accuracy, heads)
