// The one kernel: keeps a stream busy for a given time. Compiled by nvcc, so that the rest needs a C++ compiler only.
#pragma once

#include <cuda_runtime_api.h>

namespace peers {

// One thread that runs for `ns` nanoseconds on `stream` and then writes to `out`, 8 bytes of the device.
cudaError_t spin(cudaStream_t stream, long long ns, void *out);

}  // namespace peers
