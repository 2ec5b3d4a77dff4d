/* Where GPUs stand: whose memory they reach, and the CPUs and NUMA nodes near them. */
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CAP_WRITE = 1 };

API nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other, unsigned cap,
                                        unsigned *out)
{
    const char *const names[] = {"p2p_write", "p2p"};
    char key[32];
    BEGIN_DEVICE(one);
    for (int i = cap == CAP_WRITE ? 0 : 1; i < 2; i++) {
        snprintf(key, sizeof key, "%s.%d", names[i], device_index(other));
        if (get_uint(&call, key, out) == NVML_SUCCESS) return NVML_SUCCESS;
        if (get_uint(&call, names[i], out) == NVML_SUCCESS) return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_SUPPORTED;
}

static void set_bit(u64 *words, unsigned size, unsigned bit)
{
    if (bit / 64 < size) words[bit / 64] |= 1ULL << bit % 64;
}

/* The bits of a text such as `0-15,64-79`. */
static nvmlReturn_t cpus_of(const struct call *call, unsigned size, u64 *out)
{
    char text[1024];
    REQUIRE(out);
    nvmlReturn_t status = get_text(call, "cpus", text, sizeof text);
    if (status != NVML_SUCCESS) return status;
    memset(out, 0, size * sizeof *out);
    for (char *rest = text, *part; (part = strsep(&rest, ",")) != NULL;) {
        char *end;
        unsigned first = (unsigned)strtoul(part, &end, 10);
        unsigned last = *end == '-' ? (unsigned)strtoul(end + 1, NULL, 10) : first;
        for (unsigned cpu = first; cpu <= last; cpu++) set_bit(out, size, cpu);
    }
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned size, u64 *out)
{
    BEGIN_DEVICE(device);
    return cpus_of(&call, size, out);
}

#if ERA >= 450   /* nvml.h of CUDA 11.0 */
API nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned size, u64 *out,
                                                     unsigned scope)
{
    (void)scope;
    BEGIN_DEVICE(device);
    return cpus_of(&call, size, out);
}

API nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned size, u64 *out,
                                             unsigned scope)
{
    unsigned node;
    (void)scope;
    BEGIN_DEVICE(device);
    REQUIRE(out);
    nvmlReturn_t status = get_uint(&call, "numa", &node);
    if (status != NVML_SUCCESS) return status;
    memset(out, 0, size * sizeof *out);
    set_bit(out, size, node);
    return NVML_SUCCESS;
}
#endif

#if ERA >= 580   /* approximate */
API nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned *out)
{
    BEGIN_DEVICE(device);
    return get_uint(&call, "gpu_numa", out);
}
#endif
