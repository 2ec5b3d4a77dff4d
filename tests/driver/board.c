/* What a board says of itself beyond what every driver tells. */
#include "machine.h"

#include <stddef.h>

API nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned *out)
{
    BEGIN_DEVICE(device);
    return get_uint(&call, "pcie.replays", out);
}

#if ERA >= 450   /* approximate: not in CUDA 9.1's header */
API nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, unsigned *out)
{
    BEGIN_DEVICE(device);
    return get_uint(&call, "virtualization", out);
}
#endif

#if ERA >= 535   /* approximate */
static nvmlReturn_t engine(const struct call *call, const char *key, unsigned *out, unsigned *period)
{
    nvmlReturn_t status = get_uint(call, key, out);
    return status == NVML_SUCCESS ? get_uint(call, "utilization.period", period) : status;
}

API nvmlReturn_t nvmlDeviceGetJpgUtilization(nvmlDevice_t device, unsigned *out, unsigned *period)
{
    BEGIN_DEVICE(device);
    return engine(&call, "utilization.jpeg", out, period);
}

API nvmlReturn_t nvmlDeviceGetOfaUtilization(nvmlDevice_t device, unsigned *out, unsigned *period)
{
    BEGIN_DEVICE(device);
    return engine(&call, "utilization.ofa", out, period);
}
#endif

#if ERA >= 580   /* approximate: newer than 535 */
typedef struct { unsigned version; int marginTemperature; } nvmlMarginTemperature_v1_t;

_Static_assert(VERSIONED(nvmlMarginTemperature_v1_t, 1) == 0x01000008, "nvmlMarginTemperature_v1");

API nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device,
                                                nvmlMarginTemperature_v1_t *out)
{
    BEGIN_DEVICE(device);
    REQUIRE(out);
    if (out->version != VERSIONED(nvmlMarginTemperature_v1_t, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return get_uint(&call, "margin", (unsigned *)&out->marginTemperature);
}
#endif
