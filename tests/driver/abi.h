/* The part of NVML's binary interface that this library speaks.
 *
 * Layouts and version words are those of nvidia-ml-py 13 (pynvml.py); nothing here may be
 * reordered. A version word is (version << 24) | sizeof(struct).
 *
 * Which symbols exist in which driver (ERA is 390, 450, 535 or 580):
 *   390  nvml.h of CUDA 9.1 (driver 387): nvmlInitWithFlags, nvmlSystemGetCudaDriverVersion,
 *        nvmlDeviceGetPciInfo_v3, the 16-byte unsuffixed process lists.
 *   450  nvml.h of CUDA 11.0: adds MIG; the process lists are still unsuffixed and 16 bytes.
 *   535  late 535 drivers (535.154 and on): process lists _v2 and _v3 (both 24 bytes) and of MPS,
 *        nvmlDeviceGetMemoryInfo_v2 (from 510), nvmlDeviceGetRunningProcessDetailList. Some early
 *        535 drivers had a 32-byte _v3 struct, or no _v3; those are not modelled.
 *   580  everything here.
 * Both headers are kept in github.com/gpuopenanalytics/pynvml, docs/; the process lists are told
 * in github.com/XuehaiPan/nvitop/pull/89. What neither says is an approximation and says so where
 * its #if stands.
 */
#ifndef ABI_H
#define ABI_H

#ifndef ERA
#define ERA 580
#endif

#define API __attribute__((visibility("default")))

typedef int nvmlReturn_t;
typedef struct nvmlDevice_st *nvmlDevice_t;
typedef unsigned long long u64;

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999,
};

#define VERSIONED(type, version) (((unsigned)(version) << 24) | (unsigned)sizeof(type))

typedef struct {
    char busId[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    unsigned reserved[4];
} nvmlPciInfo_v2_t;

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

typedef struct { u64 total, free, used; } nvmlMemory_t;
typedef struct { unsigned version; u64 total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct {
    unsigned multiprocessorCount;
    unsigned sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount;
    unsigned sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
    u64 memorySizeMB;
} nvmlDeviceAttributes_t;
typedef struct { u64 bar1Total, bar1Free, bar1Used; } nvmlBAR1Memory_t;
typedef struct { unsigned gpu, memory; } nvmlUtilization_t;
typedef struct { unsigned version, sensorType; int temperature; } nvmlTemperature_v1_t;

typedef struct { unsigned pid; u64 usedGpuMemory; } nvmlProcessInfo_v1_t;
typedef struct {
    unsigned pid;
    u64 usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_v2_t;
typedef struct {
    unsigned pid;
    u64 usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
    u64 usedGpuCcProtectedMemory;
} nvmlProcessDetail_v1_t;
typedef struct {
    unsigned version, mode, numProcArrayEntries;
    nvmlProcessDetail_v1_t *procArray;
} nvmlProcessDetailList_v1_t;

typedef struct {
    unsigned pid;
    u64 timeStamp;
    unsigned smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;
typedef struct {
    u64 timeStamp;
    unsigned pid, smUtil, memUtil, encUtil, decUtil, jpgUtil, ofaUtil;
} nvmlProcessUtilizationInfo_v1_t;
typedef struct {
    unsigned version, processSamplesCount;
    u64 lastSeenTimeStamp;
    nvmlProcessUtilizationInfo_v1_t *procUtilArray;
} nvmlProcessesUtilizationInfo_v1_t;

typedef struct {
    unsigned fieldId, scopeId;
    long long timestamp, latencyUsec;
    unsigned valueType;
    nvmlReturn_t nvmlReturn;
    union { double dVal; u64 ullVal; } value;
} nvmlFieldValue_t;

/* Version words and sizes as nvidia-ml-py writes or computes them. */
_Static_assert(VERSIONED(nvmlMemory_v2_t, 2) == 0x02000028, "nvmlMemory_v2");
_Static_assert(VERSIONED(nvmlTemperature_v1_t, 1) == 0x0100000C, "nvmlTemperature_v1");
_Static_assert(VERSIONED(nvmlProcessDetailList_v1_t, 1) == 0x01000018, "nvmlProcessDetailList_v1");
_Static_assert(VERSIONED(nvmlProcessesUtilizationInfo_v1_t, 1) == 0x01000018,
               "ProcessesUtilizationInfo_v1");
_Static_assert(sizeof(nvmlPciInfo_t) == 68 && sizeof(nvmlPciInfo_v2_t) == 52, "nvmlPciInfo_t");
_Static_assert(sizeof(nvmlProcessInfo_v1_t) == 16, "nvmlProcessInfo_v1_t");
_Static_assert(sizeof(nvmlProcessInfo_v2_t) == 24, "nvmlProcessInfo_v2_t");
_Static_assert(sizeof(nvmlProcessUtilizationSample_t) == 32, "nvmlProcessUtilizationSample_t");
_Static_assert(sizeof(nvmlDeviceAttributes_t) == 40, "nvmlDeviceAttributes_t");
_Static_assert(sizeof(nvmlFieldValue_t) == 40, "nvmlFieldValue_t");

#endif
