// One thread, two streams: memory is allocated on one, an event makes the other wait for it, and it is freed on the other.
#pragma once

#include "../harness/clock.h"
#include "../harness/contender.h"
#include "../harness/report.h"
#include "../harness/stream.h"
#include "pairs.h"

namespace peers {

template <class Contender>
void handed_over(Report &report) {
  for (Size size : {Size{"64 KiB", 64 << 10}, Size{"16 MiB", 16 << 20}}) {
    report.attempt(size.text, "ns", [&] {
      Contender::fresh(Room::kPreset);
      Stream<Contender> producer, consumer;
      Event made;
      return per_call_ns(
          [&](long count) {
            for (long i = 0; i < count; i++) {
              void *p = Contender::take(size.bytes, producer);
              must(cudaEventRecord(made, producer), "cudaEventRecord");
              must(cudaStreamWaitEvent(consumer, made, 0), "cudaStreamWaitEvent");
              Contender::give_elsewhere(p, size.bytes, producer, consumer);
            }
          },
          [&] { must(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); });
    });
  }
}

}  // namespace peers
