/* Starting the library, the machine's versions, and finding a GPU. */
#include "machine.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static nvmlReturn_t initialize(const char *function)
{
    struct call call;
    nvmlReturn_t status = call_begin(&call, function, NO_GPU);
    if (status == NVML_SUCCESS) driver_initialized(+1);
    return status;
}

API nvmlReturn_t nvmlInit(void) { return initialize(__func__); }
API nvmlReturn_t nvmlInit_v2(void) { return initialize(__func__); }
API nvmlReturn_t nvmlInitWithFlags(unsigned flags) { (void)flags; return initialize(__func__); }

API nvmlReturn_t nvmlShutdown(void)
{
    BEGIN(NO_GPU);
    driver_initialized(-1);
    return NVML_SUCCESS;
}

/* The texts of NVML itself. */
API const char *nvmlErrorString(nvmlReturn_t error)
{
    static const char *const text[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported",
        "Insufficient Permissions", "Already Initialized", "Not Found", "Insufficient Size",
        "Insufficient External Power", "Driver Not Loaded", "Timeout", "Interrupt Request Issue",
        "NVML Shared Library Not Found", "Function Not Found", "Corrupted infoROM", "GPU is lost",
        "GPU requires reset", "The operating system has blocked the request",
        "Driver/library version mismatch", "In use by another client", "Insufficient Memory",
        "No data", "vGPU ECC is not supported", "Insufficient Resources",
        "Frequency not supported", "Argument version mismatch", "Deprecated", "Not ready",
        "GPU not found", "Invalid state", "Reset type not supported",
    };
    if (error < 0 || error >= (int)(sizeof text / sizeof *text)) return "Unknown Error";
    return text[error];
}

API nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned size)
{
    BEGIN(NO_GPU);
    return get_text(&call, "driver_version", out, size);
}

API nvmlReturn_t nvmlSystemGetNVMLVersion(char *out, unsigned size)
{
    BEGIN(NO_GPU);
    return get_text(&call, "nvml_version", out, size);
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *out)
{
    BEGIN(NO_GPU);
    return get_uint(&call, "cuda_version", (unsigned *)out);
}

#if ERA >= 450   /* approximate: not in CUDA 9.1's header */
API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *out)
{
    BEGIN(NO_GPU);
    return get_uint(&call, "cuda_version", (unsigned *)out);
}
#endif

/* The first word of the command line, cropped, as the driver does. */
API nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *out, unsigned size)
{
    BEGIN(NO_GPU);
    char path[64];
    if (out == NULL || size == 0) return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return NVML_ERROR_NOT_FOUND;
    ssize_t length = read(fd, out, size - 1);
    close(fd);
    out[length > 0 ? length : 0] = '\0';
    return NVML_SUCCESS;
}

static nvmlReturn_t count_gpus(const char *function, unsigned *out)
{
    struct call call;
    nvmlReturn_t status = call_begin(&call, function, NO_GPU);
    if (status != NVML_SUCCESS) return status;
    REQUIRE(out);
    *out = (unsigned)call.scenario->gpus;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetCount(unsigned *out) { return count_gpus(__func__, out); }
API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *out) { return count_gpus(__func__, out); }

static nvmlReturn_t handle_by_index(const char *function, unsigned index, nvmlDevice_t *out)
{
    const struct scenario *scenario = scenario_now();
    struct call call;
    REQUIRE(out);
    if (scenario && index >= (unsigned)scenario->gpus) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t status = call_begin(&call, function, (int)index);
    if (status == NVML_SUCCESS) *out = device_handle((int)index, WHOLE_GPU);
    return status;
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *out)
{
    return handle_by_index(__func__, index, out);
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *out)
{
    return handle_by_index(__func__, index, out);
}

typedef int same_fn(const char *wanted, const char *found);

static int same_text(const char *wanted, const char *found)
{
    return strcmp(wanted, found) == 0;
}

static int same_bus_id(const char *wanted, const char *found)
{
    unsigned a[3], b[3];
    return sscanf(wanted, "%x:%x:%x", &a[0], &a[1], &a[2]) == 3 &&
           sscanf(found, "%x:%x:%x", &b[0], &b[1], &b[2]) == 3 && memcmp(a, b, sizeof a) == 0;
}

/* The handle of the GPU of which the text under `key` is the wanted one. */
static nvmlReturn_t handle_by_text(const char *function, const char *key, same_fn *same,
                                   const char *wanted, nvmlDevice_t *out)
{
    const struct scenario *scenario = scenario_now();
    int index = 0;
    REQUIRE(wanted);
    for (int count = scenario ? scenario->gpus : 0; index < count; index++) {
        const struct value *value = table_find(&scenario->gpu[index].values, key);
        if (value && value->text && same(wanted, value->text))
            return handle_by_index(function, (unsigned)index, out);
    }
    return NVML_ERROR_NOT_FOUND;
}

API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out)
{
    for (int slot = 0; slot < MAX_SLOTS; slot++) {
        char key[32];
        snprintf(key, sizeof key, "mig.%d.uuid", slot);
        nvmlReturn_t status = handle_by_text(__func__, key, same_text, uuid, out);
        if (status == NVML_ERROR_NOT_FOUND) continue;
        if (status == NVML_SUCCESS) *out = device_handle(device_index(*out), slot);
        return status;
    }
    return handle_by_text(__func__, "uuid", same_text, uuid, out);
}

API nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *out)
{
    return handle_by_text(__func__, "pci.bus_id", same_bus_id, bus_id, out);
}

API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *out)
{
    return handle_by_text(__func__, "pci.bus_id", same_bus_id, bus_id, out);
}
