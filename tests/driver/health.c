/* Whether a GPU is well: its memory, repairs and fabric. */
#include "machine.h"

#include <string.h>

/* cause: 0 several single-bit errors, 1 a double-bit error. */
static nvmlReturn_t retired(nvmlDevice_t device, const char *function, unsigned cause,
                            unsigned *count, u64 *pages, u64 *times)
{
    struct call call;
    u64 known;
    nvmlReturn_t status = call_begin(&call, function, device_index(device));
    if (status != NVML_SUCCESS) return status;
    if (cause > 1 || count == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    status = get_u64(&call, cause ? "retired.double" : "retired.single", &known);
    if (status != NVML_SUCCESS) return status;
    unsigned room = *count;
    *count = (unsigned)known;
    if (room < known) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; pages && i < known; i++) pages[i] = 0x1000 * (i + 1);
    for (unsigned i = 0; times && i < known; i++) times[i] = 0;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, unsigned cause, unsigned *count,
                                           u64 *pages)
{
    return retired(device, __func__, cause, count, pages, NULL);
}

API nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, unsigned *out)
{
    BEGIN_DEVICE(device);
    return get_uint(&call, "retired.pending", out);
}

#if ERA >= 450   /* in CUDA 11.0's header */
API nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, unsigned cause, unsigned *count,
                                              u64 *pages, u64 *times)
{
    return retired(device, __func__, cause, count, pages, times);
}

API nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *correctable,
                                           unsigned *uncorrectable, unsigned *pending,
                                           unsigned *failure)
{
    BEGIN_DEVICE(device);
    nvmlReturn_t status = get_uint(&call, "remapped.correctable", correctable);
    if (status == NVML_SUCCESS) status = get_uint(&call, "remapped.uncorrectable", uncorrectable);
    if (status == NVML_SUCCESS) status = get_uint(&call, "remapped.pending", pending);
    return status == NVML_SUCCESS ? get_uint(&call, "remapped.failure", failure) : status;
}
#endif

#if ERA >= 580   /* approximate: the second of these is of a late 535, the last of 590 */
typedef struct {
    unsigned version;
    u64 uncorrected[2], corrected, recent[3], buckets[5];
    unsigned thresholdExceeded;
} nvmlEccSramErrorStatus_v1_t;
typedef struct {
    unsigned version;
    unsigned char clusterUuid[16];
    nvmlReturn_t status;
    unsigned cliqueId, state, healthMask;
} nvmlGpuFabricInfo_v2_t;
typedef struct { unsigned version, channel, tpc; } nvmlRepairStatus_v1_t;
typedef struct { unsigned version, unrepairable; } nvmlUnrepairableMemory_v1_t;
_Static_assert(VERSIONED(nvmlEccSramErrorStatus_v1_t, 1) == 0x1000068, "EccSramErrorStatus_v1");
_Static_assert(VERSIONED(nvmlGpuFabricInfo_v2_t, 2) == 0x02000024, "GpuFabricInfo_v2");
_Static_assert(VERSIONED(nvmlRepairStatus_v1_t, 1) == 0x100000C, "RepairStatus_v1");
_Static_assert(VERSIONED(nvmlUnrepairableMemory_v1_t, 1) == 0x1000008, "UnrepairableMemory_v1");

#define CHECK_VERSION(out, type, number)                             \
    do {                                                             \
        REQUIRE(out);                                                \
        if ((out)->version != VERSIONED(type, number))               \
            return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;             \
    } while (0)

API nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device,
                                                 nvmlEccSramErrorStatus_v1_t *out)
{
    BEGIN_DEVICE(device);
    CHECK_VERSION(out, nvmlEccSramErrorStatus_v1_t, 1);
    return get_uint(&call, "ecc.sram_threshold", &out->thresholdExceeded);
}

API nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfo_v2_t *out)
{
    BEGIN_DEVICE(device);
    CHECK_VERSION(out, nvmlGpuFabricInfo_v2_t, 2);
    memset(out->clusterUuid, number_or(&call, "fabric.cluster", 0) ? 0xAB : 0,
           sizeof out->clusterUuid);
    out->status = (nvmlReturn_t)number_or(&call, "fabric.status", 0);
    out->cliqueId = 7;
    out->healthMask = (unsigned)number_or(&call, "fabric.mask", 0);
    return get_uint(&call, "fabric.state", &out->state);
}

API nvmlReturn_t nvmlDeviceGetRepairStatus(nvmlDevice_t device, nvmlRepairStatus_v1_t *out)
{
    BEGIN_DEVICE(device);
    CHECK_VERSION(out, nvmlRepairStatus_v1_t, 1);
    nvmlReturn_t status = get_uint(&call, "repair.channel", &out->channel);
    return status == NVML_SUCCESS ? get_uint(&call, "repair.tpc", &out->tpc) : status;
}

API nvmlReturn_t nvmlDeviceGetUnrepairableMemoryFlag_v1(nvmlDevice_t device,
                                                        nvmlUnrepairableMemory_v1_t *out)
{
    BEGIN_DEVICE(device);
    CHECK_VERSION(out, nvmlUnrepairableMemory_v1_t, 1);
    return get_uint(&call, "unrepairable", &out->unrepairable);
}
#endif
