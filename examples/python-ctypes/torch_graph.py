"""CUDA graphs under Forebay: memory allocated inside a capture is the graph's own until the graph is released.

A graph replays with the addresses it was captured with. If the pool gave those away in between, a replay would read
and write somebody else's data; if it never gave them back, every graph would leak.
"""

import gc

from common import mib, must, need

torch = need("torch")
import forebay_ctypes as forebay  # noqa: E402  (a missing framework must be said before a missing library)

GIB = 1 << 30
SIZE = 1024
WARM_UP = 2


def network():
    layers = []
    for _ in range(4):
        layers += [torch.nn.Linear(SIZE, SIZE), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers).cuda()


def press(rounds: int = 30) -> None:
    """Other work takes all the memory it can get, of many sizes, and scribbles on it."""
    generator = torch.Generator().manual_seed(7)
    for _ in range(rounds):
        held = []
        try:
            while True:
                count = int(torch.randint(1 << 16, 1 << 27, (1,), generator=generator))
                held.append(torch.full((count,), float("nan"), device="cuda"))
        except torch.OutOfMemoryError:
            pass
        del held
    torch.cuda.synchronize()


def capture(work, stream, pool=None):
    """Warms `work` up on the stream that captures it, then captures it. The result lives in the graph's pool."""
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            work()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, pool=pool):
        result = work()
    return graph, result


def forward_graph(stream) -> None:
    model, x = network(), torch.zeros(4096, SIZE, device="cuda")

    def work():
        y = model(x)
        return (y.softmax(-1) * y).sum(-1)  # several blocks that live and die inside the capture

    with torch.no_grad():
        graph, result = capture(work, stream)
        private = forebay.stats()["private_bytes"]
        must(private > 0, f"the graph's pool holds {mib(private)} MiB")
        for number in range(5):
            press(5)
            fresh = torch.randn_like(x)
            x.copy_(fresh)
            graph.replay()
            torch.cuda.synchronize()
            if not torch.allclose(result, work(), rtol=1e-5, atol=1e-4):
                must(False, f"replay {number} after pressure gives the eager result")
    must(True, "5 replays, each right after the pool was pressed, give the eager result")


def training_graph(stream, steps: int = 20) -> None:
    """Forward, backward and the optimizer in one graph; the gradients are allocated inside the capture."""
    torch.manual_seed(10)
    x, y = torch.randn(512, SIZE, device="cuda"), torch.randn(512, SIZE, device="cuda")

    def trainer():
        torch.manual_seed(11)
        model = network()
        adam = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=True)

        def work():
            adam.zero_grad(set_to_none=True)
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            adam.step()
            return loss

        return work

    eager = trainer()
    expected = [eager().item() for _ in range(WARM_UP + steps)][WARM_UP:]
    work = trainer()  # held while the graph is used: it owns the weights that the graph reads and writes
    graph, loss = capture(work, stream)
    losses = []
    for _ in range(steps):
        graph.replay()
        losses.append(loss.item())
        press(1)
    worst = max(abs(a - b) / b for a, b in zip(losses, expected))
    must(worst < 1e-4, f"{steps} captured training steps under pressure: the eager losses, within {worst:.0e}")


def two_graphs_one_pool(stream) -> None:
    x = torch.ones(1 << 22, device="cuda")
    first, one = capture(lambda: (x * 2) + 1, stream)
    second, two = capture(lambda: (x * 3) + 1, stream, pool=first.pool())
    first.replay()
    second.replay()
    press(3)
    must(float(two.max()) == 4.0, "a second graph in the first one's pool gives its result")
    del first, one
    gc.collect()
    press(3)
    x.fill_(2)
    second.replay()
    must(float(two.min()) == 7.0, "and still replays when the first graph is gone")


def main() -> None:
    forebay.torch_install()
    forebay.lib.forebay_pool_set_limit(forebay.shared(), 0, 4 * GIB)
    stream = torch.cuda.Stream()
    for case in (forward_graph, training_graph, two_graphs_one_pool):
        print(case.__name__)
        case(stream)
        gc.collect()
        torch._C._cuda_clearCublasWorkspaces()  # cuBLAS keeps what it took during the capture
        torch.cuda.synchronize()
        must(forebay.stats()["private_bytes"] == 0, "released: no memory belongs to a graph's pool")
    live = forebay.stats()["live"]
    forebay.trim()
    physical = forebay.stats()["physical"]
    must(physical <= live + (64 << 20), f"trimmed: {mib(physical)} MiB held for {mib(live)} MiB live")
    forebay.lib.forebay_pool_check(forebay.shared(), 0)


if __name__ == "__main__":
    main()
