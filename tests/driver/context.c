/* What a program does on a GPU by libcuda.so.1: contexts, memory, modules, kernels.
 *
 * What it holds stands in NVML's lists by way of the machine, which stands for the kernel's driver
 * (contexts.py): this library tells it over the socket that GPUTOP_TEST_CUDA names, and goes on when
 * it has answered. Without that variable there is no context (CUDA_ERROR_OPERATING_SYSTEM).
 */
#include "cuda.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define CONTEXT_BYTES (512ULL << 20)   /* of a context by itself, as on data-center cards */
#define KERNEL_MS 20
#define MAX_BLOCKS 1024

struct block { u64 address, size; int device; };

static struct block blocks[MAX_BLOCKS];
static u64 next_address = 0x7f0000000000ULL;
static int retained[MAX_DEVICES];
static double told_busy[MAX_DEVICES];   /* monotonic seconds at which the machine was last told */
static __thread int current = -1;

static int connected(void)
{
    static int machine = -1;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = getenv("GPUTOP_TEST_CUDA");
    if (machine >= 0 || path == NULL) return machine;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    machine = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(machine, (struct sockaddr *)&address, sizeof address) != 0) {
        close(machine);
        machine = -1;
    }
    return machine;
}

static u64 held(int device)
{
    u64 bytes = retained[device] ? CONTEXT_BYTES : 0;
    for (int i = 0; i < MAX_BLOCKS; i++)
        if (blocks[i].address && blocks[i].device == device) bytes += blocks[i].size;
    return bytes;
}

/* Tell the machine what this process holds on a device, and wait until NVML knows it. */
static int tell(int device, int busy)
{
    char line[80];
    struct device on = visible_device(device);
    int size = snprintf(line, sizeof line, "%d %d %llu %d\n", on.gpu, on.slot, held(device), busy);
    if (connected() < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    if (write(connected(), line, (size_t)size) != size || read(connected(), line, 1) != 1)
        return CUDA_ERROR_OPERATING_SYSTEM;
    return CUDA_SUCCESS;
}

API int cuDevicePrimaryCtxRetain(void **context, int device)
{
    BEGIN_CUDA(device);
    *context = (void *)(intptr_t)(device + 1);
    return retained[device]++ ? CUDA_SUCCESS : tell(device, 0);
}

API int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    BEGIN_CUDA(device);
    *flags = 0;
    *active = retained[device] > 0;
    return CUDA_SUCCESS;
}

API int cuCtxSetCurrent(void *context)
{
    struct call call;
    int device = (int)(intptr_t)context - 1;
    int status = cuda_begin(&call, __func__, NO_GPU);
    if (status != CUDA_SUCCESS) return status;
    if (device < 0 || device >= MAX_DEVICES || !retained[device]) return CUDA_ERROR_INVALID_CONTEXT;
    current = device;
    return CUDA_SUCCESS;
}

#define BEGIN_CURRENT()                                         \
    do {                                                        \
        if (current < 0) return CUDA_ERROR_INVALID_CONTEXT;     \
    } while (0);                                                \
    BEGIN_CUDA(current)

static struct block *block_at(u64 address)
{
    for (int i = 0; i < MAX_BLOCKS; i++)
        if (blocks[i].address == address) return &blocks[i];
    return NULL;
}

API int cuMemAlloc_v2(u64 *address, size_t size)
{
    BEGIN_CURRENT();
    struct block *block = block_at(0);
    if (size == 0) return CUDA_ERROR_INVALID_VALUE;
    if (block == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    *block = (struct block){next_address, size, current};
    next_address += (size + 0x1fffff) & ~0x1fffffULL;
    *address = block->address;
    return tell(current, 0);
}

API int cuMemFree_v2(u64 address)
{
    BEGIN_CURRENT();
    struct block *block = address ? block_at(address) : NULL;
    if (block == NULL) return CUDA_ERROR_INVALID_VALUE;
    *block = (struct block){0, 0, 0};
    return tell(current, 0);
}

/* A module is its text, a function the place of its entry. */
API int cuModuleLoadData(void **module, const void *image)
{
    BEGIN_CURRENT();
    const char *text = image;
    if (!strstr(text, ".version ") || !strstr(text, ".target ")) return CUDA_ERROR_INVALID_PTX;
    *module = strdup(text);
    return CUDA_SUCCESS;
}

API int cuModuleGetFunction(void **function, void *module, const char *name)
{
    BEGIN_CURRENT();
    char entry[128];
    snprintf(entry, sizeof entry, ".entry %s(", name);
    *function = strstr(module, entry);
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

API int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                       unsigned by, unsigned bz, unsigned shared, void *stream, void **parameters,
                       void **extra)
{
    BEGIN_CURRENT();
    (void)shared, (void)stream, (void)extra;
    if (!function || !gx || !gy || !gz || !bx || !by || !bz || !parameters)
        return CUDA_ERROR_INVALID_VALUE;
    if (seconds() - told_busy[current] < 0.3) return CUDA_SUCCESS;
    told_busy[current] = seconds();
    return tell(current, 1);
}

API int cuCtxSynchronize(void)
{
    BEGIN_CURRENT();
    if (seconds() - told_busy[current] < 1) usleep(KERNEL_MS * 1000);
    return CUDA_SUCCESS;
}
