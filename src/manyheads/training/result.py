"""The result of a run."""

from dataclasses import dataclass
from pathlib import Path

from manyheads.client.client import Client
from manyheads.client.own_statistics import model_for_own_task
from manyheads.config.experiment import Experiment
from manyheads.errors import ConfigurationError
from manyheads.evaluation.head_choice import adds_prior, choose_head
from manyheads.models.classifier import Classifier
from manyheads.runs.relations import Relations
from manyheads.runs.summary import Summary


@dataclass(frozen=True)
class Result:
    """The result of a finished run. Its clients, in evaluation mode, can be used at once.

    Values of the summary are attributes, `result.summary.shared_accuracy`, and can also be read as from a dict:
    `result.summary["shared_accuracy"]`.
    """

    experiment: Experiment
    clients: list[Client]
    summary: Summary
    folder: Path | None
    stop_requested: bool = False  # asked to stop in its last window: it has ended, but no other run should start
    relations: Relations | None = None  # of pairs of clients: if there are few clients, or on request

    def __repr__(self) -> str:
        """Return the outcome, without anything that is private."""
        shared = " ".join(f"{100 * value:.1f}" for value in self.summary.shared_accuracy)
        private, where = 100 * self.summary.private_task[0], f", folder {self.folder}" if self.folder else ""
        what = f"{self.summary.algorithm}, {len(self.clients)} clients, {self.summary.steps} steps"
        return f"Result({what}: private {private:.1f} %, shared by head {shared} %{where})"

    def classifier(self, client: int = 0, head: int | None = None, task: str = "shared") -> Classifier:
        """Return one head of a client's model, by default the one for `task`: uint8 images in, logits out."""
        if not 0 <= client < len(self.clients):
            raise ConfigurationError(f"client = {client}: this run has clients 0 to {len(self.clients) - 1}")
        one, own = self.clients[client], self.summary.clients[client]
        chosen = choose_head(head, task, one.model.shape_HC[0], own.deploy)
        prior = one.log_prior_C if adds_prior(head, task, own.deploy) else None
        model = one.model if prior is None else model_for_own_task(one)
        height, width, channels = self.summary.image_shape
        return Classifier(model, chosen, self.summary.classes, (height, width, channels), prior)
