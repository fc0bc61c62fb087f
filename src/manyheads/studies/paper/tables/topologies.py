"""Figures 5 and 6: communication graphs."""

from statistics import mean

from manyheads.studies.paper.claims import Claim, above, at, near
from manyheads.studies.paper.measures import HEADS, LAST, PRIVATE, SHARED, Measure
from manyheads.studies.paper.reproduction import Cells, Reproduction
from manyheads.studies.paper.scales import Scale


def _topologies(scale: Scale) -> Cells:
    four = scale.mhd.with_values(
        clients=4,
        model={"auxiliary_heads": 3},
        algorithm={"pool_size": 4},
        training=scale.longer(2),
        evaluate={"probe": True},
    )
    graphs = {"islands": {"name": "islands", "size": 2}, "cycle": {"name": "cycle"}, "complete": {"name": "complete"}}
    return {name: four.with_values(graph=graph) for name, graph in graphs.items()}


def on_hop(hop: str, head: int) -> Measure:
    """Return the accuracy of a head on the data of clients that many hops away, as a measure."""
    return Measure(
        f"hop {hop}, head {head}", lambda result: 100.0 * result.by_hop[hop][head] if hop in result.by_hop else None
    )


PROBE = Measure("probe", lambda result: 100.0 * mean(result.probe) if result.probe else None)
TOPOLOGIES = Reproduction(
    name="topologies",
    title="Learning from clients that one never meets",
    where="Figures 5 and 6, Section 4.4",
    cells=_topologies,
    measures=(
        PRIVATE,
        SHARED,
        *HEADS[:3],
        PROBE,
        *(on_hop(hop, 3) for hop in ("1", "2", "3", "none")),
    ),
    seeds=3,
    figure="topologies",
    claims=(
        Claim(
            "Auxiliary heads know more in a cycle than on islands (shared accuracy).",
            [above(at("cycle", head), at("islands", head)) for head in HEADS[:3]],
            changed=True,
        ),
        Claim(
            "The cycle's last head is close to the complete graph's (within 2 points: our bound).",
            [near(at("cycle", LAST), at("complete", LAST), within=2.0)],
        ),
        Claim(
            "The later the head, the more the cycle gains over islands.",
            [
                above(at("cycle", b) - at("islands", b), at("cycle", a) - at("islands", a))
                for a, b in ((HEADS[0], HEADS[1]), (HEADS[1], HEADS[2]))
            ],
        ),
        Claim(
            "The main head hardly changes (within 1.5 points).",
            [near(at("cycle", SHARED), at("islands", SHARED), within=1.5)],
        ),
        Claim(
            "On an island, clients of the other island stay strangers: head 3 is at least 5 points worse on them.",
            [above(at("islands", on_hop("1", 3)), at("islands", on_hop("none", 3)), by=5.0)],
        ),
        Claim(
            "In a cycle, heads 2 and 3 are better than head 1 on data of clients two hops away, and head 3 is better "
            "than head 2 three hops away.",
            [
                *(above(at("cycle", on_hop("2", head)), at("cycle", on_hop("2", 1))) for head in (2, 3)),
                above(at("cycle", on_hop("3", 3)), at("cycle", on_hop("3", 2))),
            ],
        ),
        Claim(
            "In a cycle clients know their direct teacher's data best, among those of others (our reading: with every "
            "auxiliary head).",
            [
                above(at("cycle", on_hop("1", head)), at("cycle", on_hop(hop, head)))
                for head in (1, 2, 3)
                for hop in ("2", "3")
            ],
        ),
        Claim(
            "Embeddings on islands allow less than in a cycle (probe).",
            [above(at("cycle", PROBE), at("islands", PROBE))],
        ),
    ),
)
