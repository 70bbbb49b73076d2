"""The conditional retrieval problem (paper, section 3.1): a step may depend on several earlier values.

Every chain has a symbol for each node of a directed acyclic graph.  A node with p parents is shown as a block of N^p
tuples (a symbol of each parent, a value), in random order: in `… x y z … a y … a x … a` the answer to a is z, and
since every x meets every y, neither alone tells it.  Values that lie on no chain are fresh symbols too, and keys of
nothing.  Then come the queries, in random order: for each chain its symbols of the nodes without parents, one after
another; the answer is due at the last of them.
"""

from functools import partial
from operator import attrgetter

import torch

from hopscope.tasks.config import ConditionalConfig
from hopscope.tasks.sequence_layout import Partner, SequenceLayout
from hopscope.tasks.vector_task import VectorTask


class ConditionalTask(VectorTask):
    """The task of one configuration on one device; where the graph is a path, it is the retrieval problem.

    Roles:
        kind: `first` or `second` token of a pair, `key1`, `key2` … or `value` of a longer tuple, or `query`.
        node: whose table a tuple is; the own node of a query symbol.
        slot: place within the tuple, or within the chain's query.
        chain: which chain a tuple lies on; N where its keys are of different chains.
        place: rank of the tuple within its block, or of the chain among the queries.
        holds: the node whose symbol it is.

    Relations:
        previous: the token before.
        pair_mate: from a key to the value of its tuple, from a value to the first key.
        same_symbol: from a key to where its symbol is brought (the value of a tuple, or the query); from there to the
            first key with it, by the order of nodes, in a tuple on its own chain.
        to_NODE: to where the chain's value of a node with parents is brought; from the end of the query, and from
            symbols in tuples on the chain (or in its query) of which the node is a descendant.
        hop_1, hop_2 …: as in `RetrievalTask`, where the graph is a path.
    """

    config: ConditionalConfig

    def __init__(self, config: ConditionalConfig, device: torch.device | str = "cpu"):
        layout = SequenceLayout(config.parents, config.chains)
        number = {name: node for node, name in enumerate(config.names)}
        order = config.tables_in_time
        relations: dict[str, Partner] = {
            "pair_mate": layout.pair_mate,
            "same_symbol": layout.same_symbol,
            **{f"to_{name}": partial(layout.to_node, node=number[name]) for name in config.tables},
        }
        if config.is_path:
            relations |= {f"hop_{hop}": partial(layout.hop, steps=hop) for hop in range(1, len(config.nodes))}
        super().__init__(
            config,
            layout,
            order=None if order is None else [number[name] for name in order],
            asked={name: number[name] for name in config.asked},
            roles={
                "kind": layout.kind,
                "node": attrgetter("node"),
                "slot": attrgetter("slot"),
                "chain": layout.chain_of,
            },
            relations=relations,
            device=device,
        )
