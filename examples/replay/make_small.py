"""Makes small.csv.gz: two short trainings in one process, as the frameworks' allocators see them.

    python3 examples/replay/make_small.py

A transformer with a new sequence length in each step allocates on the default stream; a graph network with a new
number of nodes and edges allocates on stream 7; gradients are copied on stream 3, and some are freed there.
Deterministic: every run makes the same operations.
"""

import gzip
import os
import random

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "small.csv.gz")
MAIN, COPY, GRAPH = 0, 3, 7
SEED = 20261120


class Tape:
    """Writes operations and knows what is live."""

    def __init__(self):
        self.lines = ["# op,id,bytes,stream"]
        self.live = {}
        self.next = 0

    def allocate(self, size: int, stream: int) -> int:
        block, self.next = self.next, self.next + 1
        self.live[block] = (size, stream)
        self.lines.append(f"a,{block},{size},{stream}")
        return block

    def free(self, block: int, stream: int | None = None) -> None:
        size, home = self.live.pop(block)
        self.lines.append(f"f,{block},{size},{home if stream is None else stream}")


class Transformer:
    """Weights with two Adam moments each, then steps of forward and backward."""

    WIDTH, LAYERS, VOCABULARY, BATCH = 1024, 5, 32768, 4

    def __init__(self, tape):
        self.tape = tape
        shapes = [self.VOCABULARY * self.WIDTH] + [12 * self.WIDTH**2, 2 * self.WIDTH] * self.LAYERS
        self.sizes = [4 * count for count in shapes]
        self.kept = [tape.allocate(size, MAIN) for size in self.sizes * 3]

    def step(self, length: int) -> None:
        tape, tokens = self.tape, self.BATCH * length
        activation, scores = 4 * tokens * self.WIDTH, 4 * self.BATCH * 6 * length * length
        saved = [tape.allocate(8 * tokens, MAIN)]
        for _ in range(self.LAYERS):
            norm, qkv = tape.allocate(activation, MAIN), tape.allocate(3 * activation, MAIN)
            statistics = tape.allocate(8 * tokens, MAIN)
            raw, weights = tape.allocate(scores, MAIN), tape.allocate(scores, MAIN)
            tape.free(raw)
            out, wide = tape.allocate(activation, MAIN), tape.allocate(4 * activation, MAIN)
            gelu = tape.allocate(4 * activation, MAIN)
            saved += [norm, qkv, statistics, weights, out, wide, gelu]
        logits = tape.allocate(4 * tokens * self.VOCABULARY, MAIN)
        loss, gradient = tape.allocate(4, MAIN), tape.allocate(4 * tokens * self.VOCABULARY, MAIN)
        tape.free(logits)
        gradients = []
        flowing = tape.allocate(activation, MAIN)
        tape.free(gradient)
        for layer in reversed(range(self.LAYERS)):
            for block in reversed(saved[1 + 7 * layer : 8 + 7 * layer]):
                size = tape.live[block][0]
                scratch = tape.allocate(size, MAIN)
                tape.free(block)
                tape.free(scratch)
            following = tape.allocate(activation, MAIN)
            tape.free(flowing)
            flowing = following
            for size in self.sizes[1 + 2 * layer : 3 + 2 * layer]:
                gradients.append(tape.allocate(size, MAIN))
                # Copied for another process while the backward pass goes on.
                tape.free(tape.allocate(size, COPY))
        gradients.append(tape.allocate(self.sizes[0], MAIN))
        for block in [flowing, saved[0], loss]:
            tape.free(block)
        for number, block in enumerate(gradients):
            tape.free(block, COPY if number % 3 == 0 else MAIN)


class GraphNetwork:
    """Many small blocks, and a few whose size is the graph's."""

    def __init__(self, tape):
        self.tape = tape
        self.kept = [tape.allocate(size, GRAPH) for size in (131072, 512, 262144, 1024, 65536, 512)]

    def step(self, rng: random.Random) -> None:
        tape, nodes = self.tape, rng.randint(4_000, 24_000)
        edges = nodes * rng.randint(4, 9)
        held = [tape.allocate(16 * edges, GRAPH), tape.allocate(256 * nodes, GRAPH)]
        for _ in range(3):
            message, weight = tape.allocate(128 * edges, GRAPH), tape.allocate(16 * edges, GRAPH)
            small = [tape.allocate(rng.choice((4, 64, 512, 2048, 6000)), GRAPH) for _ in range(4)]
            held += [weight, tape.allocate(256 * nodes, GRAPH)]
            tape.free(message)
            rng.shuffle(small)
            for block in small:
                tape.free(block)
        while held:
            tape.free(held.pop(rng.randrange(len(held))))


def main() -> None:
    rng, tape = random.Random(SEED), Tape()
    transformer, graphs = Transformer(tape), GraphNetwork(tape)
    for _ in range(14):
        transformer.step(rng.randrange(64, 513, 8))
        graphs.step(rng)
    with open(OUT, "wb") as file:
        # No name and no time in the header: they would differ from run to run.
        with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=file, mtime=0) as packed:
            packed.write(("\n".join(tape.lines) + "\n").encode())
    print(f"{OUT}: {len(tape.lines) - 1} operations, {os.path.getsize(OUT)} bytes")


if __name__ == "__main__":
    main()
