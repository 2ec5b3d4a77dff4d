/* What the files of libcuda.so.1 share: CUDA's numbers, the devices that a program sees. */
#pragma once
#include "machine.h"

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_INVALID_PTX = 218,
    CUDA_ERROR_OPERATING_SYSTEM = 304,
    CUDA_ERROR_NOT_FOUND = 500,
};

#define MAX_DEVICES 64
struct device { int gpu, slot; };   /* slot: of a MIG device, or WHOLE_GPU */

struct device visible_device(int ordinal);
int cuda_begin(struct call *call, const char *function, int gpu);
int cuda_begin_device(struct call *call, const char *function, int device);

/* What every question about a device starts with. */
#define BEGIN_CUDA(device)                                          \
    struct call call;                                               \
    do {                                                            \
        int status = cuda_begin_device(&call, __func__, device);    \
        if (status != CUDA_SUCCESS) return status;                  \
    } while (0)
