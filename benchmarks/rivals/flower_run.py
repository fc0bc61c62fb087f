"""FedAvg in Flower's Simulation Runtime: a ClientApp and a ServerApp as in its PyTorch quickstart, on Ray.

Each client is given one core, so as many actors train at a time as there are cores. Clients are stateless, as Flower's
are: each round begins with a new optimizer. Federated evaluation is off. The server's own evaluation, which Flower asks
for at the end of every round, only looks at the clock.
"""

import logging
import sys
import time
from importlib.metadata import version
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from rivals.common import Clock, load, local_steps


def apps(folder: str, clock: Clock, trained: list[Any]) -> tuple[Any, Any]:
    client, server = ClientApp(), ServerApp()

    def train(message: Message, context: Context) -> Message:
        workload, number = load(folder), int(context.node_config["partition-id"])
        net, samples = workload.net(), workload.clients[number]
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        seed = 1_000 * message.content["config"]["server-round"] + number
        draws = torch.Generator().manual_seed(seed)
        local_steps(net, workload.optimizer(net), samples, workload.settings, draws)
        metrics = MetricRecord({"num-examples": len(samples[1])})
        content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
        return Message(content=content, reply_to=message)

    def serve(grid: Grid, context: Context) -> None:
        def look(round: int, arrays: ArrayRecord) -> None:
            if round > 0:
                clock.round_ended()

        workload = load(folder)
        result = FedAvg(fraction_evaluate=0.0).start(
            grid=grid,
            initial_arrays=ArrayRecord(workload.first_net().state_dict()),
            num_rounds=workload.settings["rounds"],
            evaluate_fn=look,
        )
        trained.append(result.arrays)

    client.train()(train)
    server.main()(serve)
    return server, client


def main() -> None:
    folder = sys.argv[1]
    workload = load(folder)
    logging.getLogger("flwr").setLevel(logging.ERROR)
    cores, trained = workload.settings["cores"], list[Any]()
    clock = Clock()
    server, client = apps(folder, clock, trained)
    run_simulation(
        server_app=server,
        client_app=client,
        num_supernodes=len(workload.clients),
        backend_config={
            "init_args": {"num_cpus": cores},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    whole = time.perf_counter() - clock.began
    net = workload.net()
    net.load_state_dict(trained[0].to_torch_state_dict())
    clock.report(version("flwr"), cores, workload.accuracy(net), whole)


if __name__ == "__main__":
    main()
