"""FedAvg in manyheads: averaging on a complete graph. Rounds end where their losses are recorded, before averaging."""

import sys

import torch

from manyheads import Experiment, __version__, train
from manyheads.runs.events import Event
from manyheads.setup.build import Ensemble
from manyheads.training.observer import SilentObserver
from rivals.common import Clock, Net, Workload, load


def experiment(workload: Workload) -> Experiment:
    s = workload.settings
    steps = s["rounds"] * s["local_steps"]
    return Experiment(
        seed=s["seed"],
        clients=len(workload.clients),
        data={"source": "clients", "path": str(workload.folder / "clients"), "augment": "none"},
        model={"backbone": s["backbone"], "width": s["width"]},
        algorithm={"name": "averaging", "average_every": s["local_steps"]},
        graph={"name": "complete"},
        training={
            "steps": steps,
            "batch_size": s["batch_size"],
            "learning_rate": s["learning_rate"],
            "schedule": "constant",
            "warmup_steps": 0,
            "balance": 0.0,
            "momentum": s["momentum"],
            "weight_decay": s["weight_decay"],
            "log_every": s["local_steps"],
        },
        evaluate={"every": steps},
    )


class Watch(SilentObserver):
    """An observer that notes the end of every round, and checks that all start from the same weights."""

    def __init__(self, workload: Workload) -> None:
        self._weights = workload.weights

    def started(self, ensemble: Ensemble, step: int) -> None:
        for client in ensemble.clients:
            for name, tensor in client.model.state_dict().items():
                assert torch.equal(tensor, self._weights[name]), f"{client.name} starts with another {name}"
        self.clock = Clock()

    def happened(self, event: Event) -> None:
        if event["event"] == "losses":
            self.clock.round_ended()


def main() -> None:
    workload, engine = load(sys.argv[1]), sys.argv[2]
    watch = Watch(workload)
    result = train(experiment(workload), engine=engine, observer=watch)
    cores = 1 if engine == "plain" else workload.settings["cores"]
    watch.clock.report(__version__, cores, workload.accuracy(Net(result.clients[0].model)))


if __name__ == "__main__":
    main()
