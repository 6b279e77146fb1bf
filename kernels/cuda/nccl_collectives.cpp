// SPDX-License-Identifier: Apache-2.0
// The table of sf_kernels/collectives.h against nccl.h and the CUDA runtime.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstring>

#include "sf_kernels/collectives.h"
#include "sf_kernels/cuda.h"

namespace {

// One range of numbers for two kinds of errors.
constexpr int kNccl = 100000;

int of(ncclResult_t result) {
  return result == ncclSuccess || result == ncclInProgress ? 0 : kNccl + static_cast<int>(result);
}
int of(cudaError_t result) {
  return static_cast<int>(result);
}
ncclComm_t comm_of(void* comm) {
  return static_cast<ncclComm_t>(comm);
}
cudaStream_t stream_of(void* stream) {
  return static_cast<cudaStream_t>(stream);
}

const char* error_text(int error) {
  return error >= kNccl ? ncclGetErrorString(static_cast<ncclResult_t>(error - kNccl))
                        : cudaGetErrorString(static_cast<cudaError_t>(error));
}

int make_id(char id[SF_COLLECTIVES_ID_BYTES]) {
  static_assert(sizeof(ncclUniqueId) == SF_COLLECTIVES_ID_BYTES);
  ncclUniqueId made;
  ncclResult_t result = ncclGetUniqueId(&made);
  std::memcpy(id, &made, sizeof made);
  return of(result);
}

int join(void** comm, int world, const char* id, int rank) {
  ncclUniqueId given;
  std::memcpy(&given, id, sizeof given);
  return of(ncclCommInitRank(reinterpret_cast<ncclComm_t*>(comm), world, given, rank));
}

int leave(void* comm) {
  return of(ncclCommDestroy(comm_of(comm)));
}
int abort_all(void* comm) {
  return of(ncclCommAbort(comm_of(comm)));
}
int async_error(void* comm) {
  ncclResult_t state = ncclSuccess;
  ncclResult_t asked = ncclCommGetAsyncError(comm_of(comm), &state);
  return of(asked == ncclSuccess ? state : asked);
}
int group_start() {
  return of(ncclGroupStart());
}
int group_end() {
  return of(ncclGroupEnd());
}
int send(const void* from, size_t bytes, int peer, void* comm, void* stream) {
  return of(ncclSend(from, bytes, ncclUint8, peer, comm_of(comm), stream_of(stream)));
}
int receive(void* to, size_t bytes, int peer, void* comm, void* stream) {
  return of(ncclRecv(to, bytes, ncclUint8, peer, comm_of(comm), stream_of(stream)));
}
int all_gather(const void* from, void* to, size_t bytes, void* comm, void* stream) {
  return of(ncclAllGather(from, to, bytes, ncclUint8, comm_of(comm), stream_of(stream)));
}
int reduce_scatter_f32(const float* from, float* to, size_t count, void* comm, void* stream) {
  return of(ncclReduceScatter(from, to, count, ncclFloat32, ncclSum, comm_of(comm), stream_of(stream)));
}
int use_device(int device) {
  return of(cudaSetDevice(device));
}
int zero(void* to, size_t bytes, void* stream) {
  return of(cudaMemsetAsync(to, 0, bytes, stream_of(stream)));
}
int copy(void* to, const void* from, size_t bytes, void* stream) {
  return of(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream)));
}
int make_stream(void** stream) {
  int least = 0, greatest = 0;
  cudaDeviceGetStreamPriorityRange(&least, &greatest);
  return of(cudaStreamCreateWithPriority(reinterpret_cast<cudaStream_t*>(stream), cudaStreamNonBlocking, greatest));
}
int free_stream(void* stream) {
  return of(cudaStreamDestroy(stream_of(stream)));
}
int pending(void* stream) {
  cudaError_t state = cudaStreamQuery(stream_of(stream));
  if (state == cudaSuccess) return 0;
  return state == cudaErrorNotReady ? 1 : -of(state);
}
int allocate(void** memory, size_t bytes) {
  return of(cudaMalloc(memory, bytes));
}
int release(void* memory) {
  return of(cudaFree(memory));
}

}  // namespace

extern "C" const sf_collectives* sf_cuda_collectives() {
  static const sf_collectives table{.error_text = error_text,
                                    .make_id = make_id,
                                    .join = join,
                                    .leave = leave,
                                    .abort = abort_all,
                                    .async_error = async_error,
                                    .group_start = group_start,
                                    .group_end = group_end,
                                    .send = send,
                                    .receive = receive,
                                    .all_gather = all_gather,
                                    .reduce_scatter_f32 = reduce_scatter_f32,
                                    .use_device = use_device,
                                    .fold_add = sf_cuda_fold_add,
                                    .zero = zero,
                                    .copy = copy,
                                    .make_stream = make_stream,
                                    .free_stream = free_stream,
                                    .pending = pending,
                                    .allocate = allocate,
                                    .release = release};
  return &table;
}
