"""record_stream: memory that another stream still uses is in nobody else's hands, however it is freed."""

from common import MIB, finish, install, must

torch = install()
side = torch.cuda.Stream()
wrong = 0
for round_ in range(50):
    x = torch.full((4 * MIB,), float(round_), device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(2_000_000)
        copy = x.clone()
    x.record_stream(side)
    del x
    # Would get the same memory at once, and write over what the side stream is about to read.
    y = torch.full((4 * MIB,), -1.0, device="cuda")
    side.synchronize()
    wrong += int((copy != float(round_)).any())
    del y, copy
must(wrong == 0, f"50 rounds, {wrong} with somebody else's values")

if torch.cuda.get_allocator_backend() == "forebay":
    x = torch.ones(MIB, device="cuda")
    x.record_stream(torch.cuda.current_stream())
    address = x.data_ptr()
    del x
    again = torch.ones(MIB, device="cuda")
    must(again.data_ptr() == address, "recording the stream of the allocation itself delays nothing")

    # Nobody says that the side stream uses it. PyTorch's own allocator keeps it for the stream of its allocation.
    third, wrong = torch.cuda.Stream(), 0
    for round_ in range(50):
        x = torch.full((4 * MIB,), float(round_), device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(2_000_000)
            copy = x.clone()
            del x
        with torch.cuda.stream(third):
            y = torch.full((4 * MIB,), -1.0, device="cuda")
        side.synchronize()
        third.synchronize()
        wrong += int((copy != float(round_)).any())
        del y, copy
    must(wrong == 0, f"freed while the side stream is current: 50 rounds, {wrong} with somebody else's values")
finish()
