"""CUDA graphs: capture, replay, shared pools, release, and nothing of a graph's memory in other hands."""

import gc

from common import MIB, finish, install, must

torch = install()
cuda = torch.cuda
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 10)).cuda()
x = torch.randn(64, 256, device="cuda")
side = cuda.Stream()
side.wait_stream(cuda.current_stream())
with cuda.stream(side):
    for _ in range(3):
        model(x)
cuda.current_stream().wait_stream(side)
graph = cuda.CUDAGraph()
with cuda.graph(graph):
    y = model(x)
    z = (y * 2).softmax(1)
noise = [torch.full((256, 1024), 9.0, device="cuda") for _ in range(64)]
for seed in range(4):
    torch.manual_seed(seed)
    x.copy_(torch.randn(64, 256, device="cuda"))
    graph.replay()
    if not torch.allclose(z, (model(x) * 2).softmax(1), atol=1e-5):
        must(False, f"replay {seed} is what the model says")
must(True, "four replays are what the model says")
must(all(float(tensor.sum()) == 9.0 * tensor.numel() for tensor in noise), "and wrote into no other tensor")

second = cuda.CUDAGraph()
with cuda.graph(second, pool=graph.pool()):
    w = z + 1
second.replay()
must(torch.allclose(w, z + 1), "a second graph shares the first one's pool")

# A whole training step.
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
goal = torch.randn(64, 10, device="cuda")
side.wait_stream(cuda.current_stream())
with cuda.stream(side):
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.mse_loss(model(x), goal).backward()
        optimizer.step()
cuda.current_stream().wait_stream(side)
step = cuda.CUDAGraph()
optimizer.zero_grad(set_to_none=True)
with cuda.graph(step):
    loss = torch.nn.functional.mse_loss(model(x), goal)
    loss.backward()
    optimizer.step()
losses = []
for _ in range(20):
    step.replay()
    losses.append(loss.item())
must(losses[-1] < losses[0], f"a captured training step trains: {losses[0]:.4f} -> {losses[-1]:.4f}")

called = cuda.make_graphed_callables(torch.nn.Linear(256, 256).cuda(), (torch.randn(8, 256, device="cuda"),))
called(torch.randn(8, 256, device="cuda", requires_grad=True)).sum().backward()
must(True, "make_graphed_callables, forward and backward")
del called
held = cuda.memory_reserved()
optimizer.zero_grad(set_to_none=True)
del graph, second, step, y, z, w, loss, noise
gc.collect()
cuda.empty_cache()
must(
    cuda.memory_reserved() < held,
    f"graphs that are gone give their memory back: {held >> 20} -> {cuda.memory_reserved() >> 20} MiB",
)
torch.ones(64 * MIB, device="cuda")
finish()
