"""FedAvg by hand: one process, one thread, one client after another, the states averaged at the end of a round."""

import sys

import torch

from rivals.common import Clock, Net, load, local_steps


@torch.no_grad()
def average(nets: list[Net]) -> None:
    """Replace all by their mean; the clients have equally many samples."""
    states = [net.state_dict() for net in nets]
    for name, first in states[0].items():
        mean = torch.stack([state[name] for state in states]).to(torch.float32).mean(0).to(first.dtype)
        for state in states:
            state[name].copy_(mean)


def main() -> None:
    workload = load(sys.argv[1])
    settings = workload.settings
    nets = [workload.first_net() for _ in workload.clients]
    optimizers = [workload.optimizer(net) for net in nets]
    draws = torch.Generator().manual_seed(settings["seed"])
    clock = Clock()
    for _ in range(settings["rounds"]):
        for net, optimizer, samples in zip(nets, optimizers, workload.clients, strict=True):
            local_steps(net, optimizer, samples, settings, draws)
        average(nets)
        clock.round_ended()
    clock.report(f"torch {torch.__version__}", 1, workload.accuracy(nets[0]))


if __name__ == "__main__":
    main()
