/* How GPUs are connected: NVLinks first to switches, then to other GPUs by index; PCIe. */
#include "machine.h"

#include <stdio.h>
#include <string.h>

enum { TO_SWITCH = -1, TO_NOTHING = -2 };
enum { REMOTE_GPU = 0, REMOTE_SWITCH = 2 };

static unsigned count_to(const struct call *call, int other)
{
    char key[32];
    if (other == TO_SWITCH) return (unsigned)number_or(call, "links.switch", 0);
    snprintf(key, sizeof key, "links.%d", other);
    return (unsigned)number_or(call, key, 0);
}

/* The index of the GPU at the other end of a link. */
static int end_of(const struct call *call, unsigned link)
{
    for (int other = TO_SWITCH; other < call->scenario->gpus; other++) {
        unsigned count = count_to(call, other);
        if (link < count) return other;
        link -= count;
    }
    return TO_NOTHING;
}

static nvmlReturn_t begin_link(const struct call *call, unsigned link, int *end)
{
    u64 total = number_or(call, "links.total", end_of(call, 0) == TO_NOTHING ? 0 : 18);
    if (total == 0) return NVML_ERROR_NOT_SUPPORTED;
    if (link >= total) return NVML_ERROR_INVALID_ARGUMENT;
    *end = end_of(call, link);
    return NVML_SUCCESS;
}

static nvmlReturn_t state_of(const struct call *call, unsigned link, u64 *out)
{
    int end;
    nvmlReturn_t status = begin_link(call, link, &end);
    if (status == NVML_SUCCESS) *out = end == TO_NOTHING ? number_or(call, "links.rest", 0) : 1;
    return status;
}

/* NVML_FI_DEV_NVLINK_LINK_COUNT, and NVML_FI_DEV_NVLINK_GET_STATE with a link as its scope. */
nvmlReturn_t link_field(const struct call *call, unsigned field, unsigned link, u64 *out)
{
    if (number_or(call, "links.fields", 1) == 0) return NVML_ERROR_NOT_SUPPORTED;
    if (field == LINK_STATE) return state_of(call, link, out);
    int end;
    for (*out = 0; begin_link(call, (unsigned)*out, &end) == NVML_SUCCESS;) ++*out;
    return *out == 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, unsigned *out)
{
    u64 state = 0;
    BEGIN_DEVICE(device);
    REQUIRE(out);
    nvmlReturn_t status = state_of(&call, link, &state);
    *out = (unsigned)state;
    return status;
}

API nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned link,
                                                     unsigned *out)
{
    int end;
    BEGIN_DEVICE(device);
    REQUIRE(out);
    nvmlReturn_t status = begin_link(&call, link, &end);
    if (status != NVML_SUCCESS) return status;
    *out = end == TO_SWITCH ? REMOTE_SWITCH : REMOTE_GPU;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link,
                                                     nvmlPciInfo_t *out)
{
    int end;
    BEGIN_DEVICE(device);
    REQUIRE(out);
    nvmlReturn_t status = begin_link(&call, link, &end);
    if (status != NVML_SUCCESS) return status;
    memset(out, 0, sizeof *out);
    if (end < 0) return NVML_ERROR_NOT_SUPPORTED;
    const struct value *bus = table_find(&call.scenario->gpu[end].values, "pci.bus_id");
    if (bus == NULL || bus->text == NULL) return NVML_ERROR_NOT_SUPPORTED;
    sscanf(bus->text, "%x:%x:%x", &out->domain, &out->bus, &out->device);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other,
                                                     unsigned *out)
{
    char key[32];
    BEGIN_DEVICE(one);
    snprintf(key, sizeof key, "near.%d", device_index(other));
    return get_uint(&call, key, out);
}
