/* What a GPU says of itself. Most answers are one key of the scenario. */
#include "machine.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define TEXT(function, key)                                                   \
    API nvmlReturn_t function(nvmlDevice_t device, char *out, unsigned size)  \
    {                                                                         \
        BEGIN_DEVICE(device);                                                 \
        return get_text(&call, key, out, size);                               \
    }
#define UINT(function, key)                                        \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned *out)  \
    {                                                              \
        BEGIN_DEVICE(device);                                      \
        return get_uint(&call, key, out);                          \
    }
#define ULONG(function, key)                                  \
    API nvmlReturn_t function(nvmlDevice_t device, u64 *out)  \
    {                                                         \
        BEGIN_DEVICE(device);                                 \
        return get_u64(&call, key, out);                      \
    }
#define PAIR(function, first, second)                                                  \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned *one, unsigned *two)       \
    {                                                                                  \
        BEGIN_DEVICE(device);                                                          \
        nvmlReturn_t status = get_uint(&call, first, one);                             \
        return status == NVML_SUCCESS ? get_uint(&call, second, two) : status;         \
    }
/* There, but not for a GPU like these: confidential computing, Windows. */
#define NOT_SUPPORTED(function)                                              \
    API nvmlReturn_t function(nvmlDevice_t device, void *out, void *more)    \
    {                                                                        \
        BEGIN_DEVICE(device);                                                \
        (void)out, (void)more;                                               \
        return NVML_ERROR_NOT_SUPPORTED;                                     \
    }
/* An argument picks one of several keys; an argument beyond them is invalid. */
#define CHOICE(function, ...)                                                          \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned choice, unsigned *out)     \
    {                                                                                  \
        static const char *const keys[] = {__VA_ARGS__};                               \
        BEGIN_DEVICE(device);                                                          \
        if (choice >= sizeof keys / sizeof *keys) return NVML_ERROR_INVALID_ARGUMENT;  \
        return get_uint(&call, keys[choice], out);                                     \
    }

TEXT(nvmlDeviceGetName, "name")
TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")
UINT(nvmlDeviceGetIndex, "index")
UINT(nvmlDeviceGetMinorNumber, "minor")
UINT(nvmlDeviceGetBrand, "brand")
UINT(nvmlDeviceGetPowerUsage, "power.usage")
UINT(nvmlDeviceGetPowerManagementLimit, "power.limit")
UINT(nvmlDeviceGetEnforcedPowerLimit, "power.enforced")
UINT(nvmlDeviceGetPowerManagementDefaultLimit, "power.default")
UINT(nvmlDeviceGetPerformanceState, "pstate")
UINT(nvmlDeviceGetPowerState, "pstate")   /* its old name */
UINT(nvmlDeviceGetFanSpeed, "fan")
UINT(nvmlDeviceGetPersistenceMode, "persistence_mode")
UINT(nvmlDeviceGetAccountingMode, "accounting_mode")
UINT(nvmlDeviceGetComputeMode, "compute_mode")
UINT(nvmlDeviceGetDisplayActive, "display_active")
UINT(nvmlDeviceGetDisplayMode, "display_mode")
UINT(nvmlDeviceGetCurrPcieLinkGeneration, "pcie.generation")
UINT(nvmlDeviceGetCurrPcieLinkWidth, "pcie.width")
UINT(nvmlDeviceGetMaxPcieLinkGeneration, "pcie.max_generation")
UINT(nvmlDeviceGetMaxPcieLinkWidth, "pcie.max_width")
ULONG(nvmlDeviceGetCurrentClocksThrottleReasons, "clock_reasons")
ULONG(nvmlDeviceGetTotalEnergyConsumption, "energy")
PAIR(nvmlDeviceGetPowerManagementLimitConstraints, "power.min", "power.max")
PAIR(nvmlDeviceGetEncoderUtilization, "utilization.encoder", "utilization.period")
PAIR(nvmlDeviceGetDecoderUtilization, "utilization.decoder", "utilization.period")
PAIR(nvmlDeviceGetEccMode, "ecc.mode", "ecc.pending")
PAIR(nvmlDeviceGetCudaComputeCapability, "compute_capability.major", "compute_capability.minor")
NOT_SUPPORTED(nvmlDeviceGetDriverModel)
CHOICE(nvmlDeviceGetTemperature, "temperature")
CHOICE(nvmlDeviceGetTemperatureThreshold, "threshold.shutdown", "threshold.slowdown",
       "threshold.memory_max", "threshold.gpu_max")
CHOICE(nvmlDeviceGetClockInfo, "clocks.graphics", "clocks.sm", "clocks.memory", "clocks.video")
CHOICE(nvmlDeviceGetMaxClockInfo, "max_clocks.graphics", "max_clocks.sm", "max_clocks.memory",
       "max_clocks.video")
CHOICE(nvmlDeviceGetPcieThroughput, "pcie.tx", "pcie.rx")

#if ERA >= 450   /* MIG: in CUDA 11.0's header. Architecture, FanSpeed_v2: approximate. */
UINT(nvmlDeviceGetArchitecture, "architecture")
PAIR(nvmlDeviceGetMigMode, "mig.mode", "mig.pending")
UINT(nvmlDeviceGetGpuInstanceId, "gi")
UINT(nvmlDeviceGetComputeInstanceId, "ci")

API nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned fan, unsigned *out)
{
    BEGIN_DEVICE(device);
    if (fan >= number_or(&call, "fans", 1)) return NVML_ERROR_INVALID_ARGUMENT;
    return get_uint(&call, "fan", out);
}

static unsigned mig_slots(const struct call *call)
{
    return number_or(call, "mig.mode", 0) ? (unsigned)number_or(call, "mig.max", 0) : 0;
}

API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *out)
{
    BEGIN_DEVICE(device);
    REQUIRE(out);
    *out = mig_slots(&call);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index,
                                                     nvmlDevice_t *out)
{
    BEGIN_DEVICE(device);
    REQUIRE(out);
    if (index >= mig_slots(&call)) return NVML_ERROR_INVALID_ARGUMENT;
    if (index >= MAX_SLOTS || !has_slot(call.gpu, (int)index)) return NVML_ERROR_NOT_FOUND;
    *out = device_handle(call.gpu_index, (int)index);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device,
                                                              nvmlDevice_t *out)
{
    BEGIN_DEVICE(device);
    REQUIRE(out);
    if (call.slot == WHOLE_GPU) return NVML_ERROR_INVALID_ARGUMENT;
    *out = device_handle(call.gpu_index, WHOLE_GPU);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *out)
{
    BEGIN_DEVICE(device);
    REQUIRE(out);
    *out = call.slot != WHOLE_GPU;
    return NVML_SUCCESS;
}
#endif

#if ERA >= 535   /* approximate, except MemoryInfo_v2 (from 510) and EventReasons (from 535) */
/* In CUDA 11.1's header, which says that it supports MIG devices alone. */
API nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *out)
{
    BEGIN_DEVICE(device);
    REQUIRE(out);
    memset(out, 0, sizeof *out);
    out->gpuInstanceSliceCount = (unsigned)number_or(&call, "gi_slices", 0);
    out->computeInstanceSliceCount = (unsigned)number_or(&call, "ci_slices", 0);
    out->memorySizeMB = number_or(&call, "memory.total", 0) >> 20;
    return get_uint(&call, "sm", &out->multiprocessorCount);
}

UINT(nvmlDeviceGetNumGpuCores, "cores")
UINT(nvmlDeviceGetNumFans, "fans")
ULONG(nvmlDeviceGetCurrentClocksEventReasons, "clock_reasons")
NOT_SUPPORTED(nvmlDeviceGetConfComputeMemSizeInfo)
#endif

static nvmlReturn_t pci(const struct call *call, nvmlPciInfo_t *out)
{
    char text[32];
    REQUIRE(out);
    nvmlReturn_t status = get_text(call, "pci.bus_id", text, sizeof text);
    if (status != NVML_SUCCESS) return status;
    memset(out, 0, sizeof *out);
    sscanf(text, "%x:%x:%x", &out->domain, &out->bus, &out->device);
    snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "%04X:%02X:%02X.0", out->domain & 0xffff,
             out->bus & 0xff, out->device & 0xff);
    snprintf(out->busId, sizeof out->busId, "%08X:%02X:%02X.0", out->domain, out->bus, out->device);
    out->pciDeviceId = (unsigned)number_or(call, "pci.device_id", 0);
    out->pciSubSystemId = (unsigned)number_or(call, "pci.subsystem_id", 0);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *out)
{
    BEGIN_DEVICE(device);
    return pci(&call, out);
}

static nvmlReturn_t pci_before_v3(const struct call *call, nvmlPciInfo_v2_t *out)
{
    nvmlPciInfo_t now;
    REQUIRE(out);
    nvmlReturn_t status = pci(call, &now);
    if (status != NVML_SUCCESS) return status;
    memset(out, 0, sizeof *out);
    memcpy(out, &now, offsetof(nvmlPciInfo_v2_t, reserved));
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_v2_t *out)
{
    BEGIN_DEVICE(device);
    return pci_before_v3(&call, out);
}

API nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_v2_t *out)
{
    BEGIN_DEVICE(device);
    return pci_before_v3(&call, out);
}

static u64 left(u64 total, u64 taken)
{
    return total > taken ? total - taken : 0;
}

static nvmlReturn_t memory(const struct call *call, nvmlMemory_v2_t *out)
{
    nvmlReturn_t status = get_u64(call, "memory.total", &out->total);
    if (status == NVML_SUCCESS) status = get_u64(call, "memory.used", &out->used);
    if (status != NVML_SUCCESS) return status;
    out->reserved = number_or(call, "memory.reserved", 0);
    out->free = left(out->total, out->used + out->reserved);
    return NVML_SUCCESS;
}

/* The first version knows no reserved memory: drivers count it as used. */
API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out)
{
    BEGIN_DEVICE(device);
    nvmlMemory_v2_t now;
    REQUIRE(out);
    nvmlReturn_t status = memory(&call, &now);
    if (status != NVML_SUCCESS) return status;
    *out = (nvmlMemory_t){.total = now.total, .free = now.free, .used = now.used + now.reserved};
    return NVML_SUCCESS;
}

#if ERA >= 535
API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out)
{
    BEGIN_DEVICE(device);
    REQUIRE(out);
    if (out->version != VERSIONED(nvmlMemory_v2_t, 2)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return memory(&call, out);
}
#endif

API nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *out)
{
    BEGIN_DEVICE(device);
    REQUIRE(out);
    nvmlReturn_t status = get_u64(&call, "bar1.total", &out->bar1Total);
    if (status == NVML_SUCCESS) status = get_u64(&call, "bar1.used", &out->bar1Used);
    if (status == NVML_SUCCESS) out->bar1Free = left(out->bar1Total, out->bar1Used);
    return status;
}

API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out)
{
    BEGIN_DEVICE(device);
    REQUIRE(out);
    nvmlReturn_t status = get_uint(&call, "utilization.gpu", &out->gpu);
    return status == NVML_SUCCESS ? get_uint(&call, "utilization.memory", &out->memory) : status;
}

#if ERA >= 580   /* approximate: newer than 535 */
NOT_SUPPORTED(nvmlDeviceGetDriverModel_v2)

API nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_v1_t *out)
{
    BEGIN_DEVICE(device);
    REQUIRE(out);
    if (out->version != VERSIONED(nvmlTemperature_v1_t, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (out->sensorType != 0) return NVML_ERROR_INVALID_ARGUMENT;
    return get_uint(&call, "temperature", (unsigned *)&out->temperature);
}
#endif

/* type: 0 corrected, 1 uncorrected; counter: 0 since the driver was loaded, 1 since ever. */
static nvmlReturn_t ecc(const struct call *call, unsigned type, unsigned counter, u64 *out)
{
    static const char *const keys[2][2] = {
        {"ecc.corrected", "ecc.aggregate_corrected"},
        {"ecc.uncorrected", "ecc.aggregate_uncorrected"},
    };
    if (type > 1 || counter > 1) return NVML_ERROR_INVALID_ARGUMENT;
    return get_u64(call, keys[type][counter], out);
}

API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned type, unsigned counter,
                                             u64 *out)
{
    BEGIN_DEVICE(device);
    return ecc(&call, type, counter, out);
}

/* All errors are in device memory, location 2. */
API nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned type,
                                                 unsigned counter, unsigned location, u64 *out)
{
    BEGIN_DEVICE(device);
    nvmlReturn_t status = ecc(&call, type, counter, out);
    if (status == NVML_SUCCESS && location != 2) *out = 0;
    return status;
}

API nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *fields)
{
    BEGIN_DEVICE(device);
    REQUIRE(fields);
    for (int i = 0; i < count; i++) {
        char key[32];
        unsigned scope = fields[i].scopeId;
        int length = snprintf(key, sizeof key, "fields.%u", fields[i].fieldId);
        if (scope == 0xFFFFFFFF) strcpy(key + length, ":all");
        else if (scope) snprintf(key + length, sizeof key - (size_t)length, ":%u", scope);
        u64 *value = &fields[i].value.ullVal;
        unsigned id = fields[i].fieldId;
        fields[i].valueType = 3;   /* unsigned long long */
        fields[i].nvmlReturn = id == LINK_COUNT || id == LINK_STATE
                                   ? link_field(&call, id, scope, value)
                                   : get_u64(&call, id == ENERGY ? "energy" : key, value);
    }
    return NVML_SUCCESS;
}
