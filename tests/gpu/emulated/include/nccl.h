/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of NCCL that chexnet uses, for tests on machines without a GPU. Only names and meanings
 * are NCCL's; tests/gpu/emulated/nccl.cc implements them, as a library that is opened like the real
 * one.
 */
#ifndef CHEX_TESTS_EMULATED_NCCL_H
#define CHEX_TESTS_EMULATED_NCCL_H

#include <cuda_runtime_api.h>

#define NCCL_VERSION_CODE 22800

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ncclComm *ncclComm_t;
typedef struct {
    char internal[128];
} ncclUniqueId;

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
} ncclResult_t;
typedef enum { ncclFloat32 = 7, ncclFloat64 = 8 } ncclDataType_t;
typedef enum { ncclSum = 0 } ncclRedOp_t;

/* The fields that chexnet sets, not NCCL's layout. */
typedef struct {
    int blocking, maxCTAs;
} ncclConfig_t;
#define NCCL_CONFIG_INITIALIZER                                                                    \
    { 1, 0 }

ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state);
const char *ncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int to, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int from, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclBroadcast(const void *data, void *out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllReduce(const void *data, void *out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclCommRegister(ncclComm_t comm, void *data, size_t bytes, void **handle);
ncclResult_t ncclCommDeregister(ncclComm_t comm, void *handle);
/* The emulated library lacks these two, as old ones do. */
ncclResult_t ncclMemAlloc(void **data, size_t bytes);
ncclResult_t ncclMemFree(void *data);

#ifdef __cplusplus
}
#endif
#endif
