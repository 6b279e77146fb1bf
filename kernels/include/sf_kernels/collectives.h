// SPDX-License-Identifier: Apache-2.0
// What a group of GPUs needs of NCCL and of its device, as one table of C functions: libshardforge-cuda fills it
// against nccl.h (sf_cuda_collectives), a test fills it with a recorder. Every call returns 0 or a number that
// error_text names; pointers are the device's unless said otherwise; a null stream is not used. No exception crosses
// it.
#pragma once
#include <cstddef>
#include <cstdint>

extern "C" {

enum { SF_COLLECTIVES_ID_BYTES = 128 };

struct sf_collectives {
  const char* (*error_text)(int error);
  // Communicators. The id is made by one rank and told to all by other means; join blocks until all ranks are there.
  int (*make_id)(char id[SF_COLLECTIVES_ID_BYTES]);
  int (*join)(void** comm, int world, const char* id, int rank);
  int (*leave)(void* comm);
  int (*abort)(void* comm);        // ends what is under way; the communicator is gone
  int (*async_error)(void* comm);  // of what is under way; 0: none so far
  int (*group_start)();            // calls up to group_end are one launch
  int (*group_end)();
  int (*send)(const void* from, size_t bytes, int peer, void* comm, void* stream);
  int (*receive)(void* to, size_t bytes, int peer, void* comm, void* stream);
  int (*all_gather)(const void* from, void* to, size_t bytes, void* comm,
                    void* stream);  // bytes a rank; in place allowed
  int (*reduce_scatter_f32)(const float* from, float* to, size_t count, void* comm, void* stream);  // count a rank
  // The device.
  int (*use_device)(int device);  // by the calling thread, for all calls that follow
  int (*fold_add)(float* acc, const float* gradient, int64_t count, void* stream);  // acc[i] += gradient[i]
  int (*zero)(void* to, size_t bytes, void* stream);
  // Either side may be the host's; a source there may be changed once this returns.
  int (*copy)(void* to, const void* from, size_t bytes, void* stream);
  int (*make_stream)(void** stream);
  int (*free_stream)(void* stream);
  int (*pending)(void* stream);  // 1: work is under way, 0: all is done, else minus an error
  int (*allocate)(void** memory, size_t bytes);
  int (*release)(void* memory);
};

}  // extern "C"
