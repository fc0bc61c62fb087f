"""Averaging of weights: FedAvg (McMahan et al. 2017) on a complete graph, gossip averaging on any other."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from manyheads.algorithms.base import Algorithm, Neighbours, Sends
from manyheads.client.client import Client
from manyheads.config.knobs import AveragingKnobs, known
from manyheads.config.types import CHECKED, Weighting
from manyheads.exchange.snapshot import Snapshot
from manyheads.exchange.weights import WeightsSnapshot


@dataclass(frozen=True, config=CHECKED)
class Averaging(AveragingKnobs, Algorithm):
    """Private training; every `average_every` steps, and at the end, each client averages with its neighbours.

    All start from the same weights. Parameters and BatchNorm statistics are averaged; momentum stays where it is.

    >>> Averaging(average_every=10).exchange_steps(25)
    (10, 20, 25)
    """

    needs_neighbours: ClassVar[bool] = True
    averages_weights: ClassVar[bool] = True
    takes_means: ClassVar[bool] = True

    @property
    def sends(self) -> Sends:
        return "averaging"

    def exchange_steps(self, steps: int) -> Sequence[int]:
        every = known(self.average_every)
        return (*range(every, steps, every), steps)

    def collect(self, client: Client, neighbours: Neighbours, step: int) -> list[Snapshot]:
        """Ask all neighbours, and take the client itself as it was before anybody averaged."""
        return [client.snapshot(step), *(neighbours[j] for j in neighbours)]

    def apply(self, client: Client, received: list[Snapshot], step: int) -> None:
        mean = mean_values([s for s in received if isinstance(s, WeightsSnapshot)], self.weighting)
        client.state.take_mean(mean)


@torch.no_grad()
def mean_values(snapshots: Sequence[WeightsSnapshot], weighting: Weighting = "samples") -> Tensor:
    """Return the mean of flat states, summed in the order of clients: from the same snapshots come the same bits.

    FedAvg (McMahan et al. 2017): sum_i n_i w_i / sum_i n_i, where n_i are samples, or 1 if `weighting` is uniform.
    """
    ordered = sorted(snapshots, key=lambda snapshot: snapshot.client)
    shares = [float(snapshot.samples) if weighting == "samples" else 1.0 for snapshot in ordered]
    mean = torch.zeros_like(ordered[0].values)
    for snapshot, share in zip(ordered, shares, strict=True):
        mean.add_(snapshot.values, alpha=share / sum(shares))
    return mean
