"""Tensors go to another process by torch.multiprocessing, both ways, and outlive their sender's reference."""

import torch.multiprocessing as multiprocessing
from common import MIB, finish, install, must

torch = install()


def child(inbox, outbox):
    kept = []
    while (message := inbox.get()) is not None:
        tensor = message
        outbox.put((tuple(tensor.shape), float(tensor.double().sum())))
        tensor.add_(1)
        torch.cuda.synchronize()
        kept.append(tensor)
        outbox.put("written")
    views = len({tensor.untyped_storage().data_ptr() for tensor in kept})
    outbox.put((views, [float(tensor.flatten()[0]) for tensor in kept]))
    own = torch.full((3, MIB), 4.0, device="cuda")
    outbox.put(own)
    inbox.get()  # the receiver has it


def main():
    context = multiprocessing.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    process = context.Process(target=child, args=(inbox, outbox))
    process.start()
    whole = torch.arange(4 * MIB, dtype=torch.float32, device="cuda")
    part = whole[1000:2000]
    small = [torch.full((8,), float(value), device="cuda") for value in range(20)]
    for tensor in [whole, part, *small]:
        torch.cuda.synchronize()
        inbox.put(tensor)
        shape, total = outbox.get(timeout=120)
        if shape != tuple(tensor.shape):
            must(False, f"shape {shape}")
        outbox.get(timeout=60)
    must(float(small[3][0]) == 4.0, "what the child wrote is in the parent's tensor")
    must(float(whole[1500]) == 1500 + 2 and float(part[500]) == 1502, "a view shares its base's memory there too")
    del small
    inbox.put(None)
    views, values = outbox.get(timeout=60)
    must(views <= 22 and values[2:] == [float(value + 1) for value in range(20)], "the child's tensors outlive the sender's")
    theirs = outbox.get(timeout=60)
    must(theirs.is_cuda and float(theirs.sum()) == 12.0 * MIB, "and the other way round")
    copy = theirs.clone()
    del theirs
    inbox.put("done")
    process.join(120)
    must(process.exitcode == 0, "the child ended well")
    must(float(copy.sum()) == 12.0 * MIB, "its memory may go")
    torch.cuda.ipc_collect()
    reserved = torch.cuda.memory_reserved()
    del whole, part
    torch.cuda.ipc_collect()
    torch.cuda.empty_cache()
    must(torch.cuda.memory_reserved() < reserved, "the parent's memory goes back when nobody has it")
    finish()


if __name__ == "__main__":
    main()
