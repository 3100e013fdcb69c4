#include "kernels.h"

namespace {

__global__ void spin_kernel(long long ns, long long *out) {
  long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < ns);
  *out = now;
}

}  // namespace

cudaError_t peers::spin(cudaStream_t stream, long long ns, void *out) {
  spin_kernel<<<1, 1, 0, stream>>>(ns, static_cast<long long *>(out));
  return cudaGetLastError();
}
