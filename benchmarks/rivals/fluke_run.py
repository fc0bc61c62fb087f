"""FedAvg in fluke: its own FedAVG with its own client and server, one process; nothing is evaluated or logged.

A fixed partition is passed as a DummyDataContainer, as fluke's own FEMNIST is. Its clients train for as many epochs as
make up the local steps.
"""

import sys
from importlib.metadata import version

from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader
from torch.nn import CrossEntropyLoss

from rivals.common import Clock, load


class Watch:
    """A callback of fluke that notes the end of every round."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def end_round(self, round: int) -> None:
        self._clock.round_ended()


def main() -> None:
    workload = load(sys.argv[1])
    settings = workload.settings
    FlukeENV().set_seed(settings["seed"])
    FlukeENV().set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    size, classes = settings["batch_size"], settings["classes"]
    loaders = [FastDataLoader(*own, num_labels=classes, batch_size=size, shuffle=True) for own in workload.clients]
    data = DummyDataContainer(loaders, [None] * len(loaders), None, classes)
    optimizer = {
        "name": "SGD",
        "lr": settings["learning_rate"],
        "momentum": settings["momentum"],
        "weight_decay": settings["weight_decay"],
    }
    client = {
        "batch_size": size,
        "local_epochs": settings["local_steps"] // len(loaders[0]),
        "loss": CrossEntropyLoss,
        "optimizer": optimizer,
        "scheduler": {"name": "StepLR", "step_size": 1, "gamma": 1},
    }
    knobs = DDict(client=client, server={"weighted": True}, model=workload.first_net())
    algorithm = FedAVG(len(loaders), DataSplitter(data), knobs)
    clock = Clock()
    algorithm.attach(Watch(clock))
    algorithm.run(n_rounds=settings["rounds"], eligible_perc=1)
    clock.report(version("fluke-fl"), 1, workload.accuracy(algorithm.server.model))


if __name__ == "__main__":
    main()
