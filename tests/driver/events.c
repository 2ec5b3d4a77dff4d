/* Events: sets of them, GPUs registered in a set, and waiting for the next one. */
#include "machine.h"

#include <stdlib.h>
#include <time.h>

enum { SINGLE_BIT = 1, DOUBLE_BIT = 2, XID = 8 };
enum { NVML_ERROR_TIMEOUT = 10 };
#define MAX_GPUS 64
#define POLL_MS 250   /* after which a change of the scenario is seen */

typedef struct nvmlEventSet_st {
    char registered[MAX_GPUS];
    int next[MAX_GPUS];   /* of each GPU, the XID that is told next */
} *nvmlEventSet_t;

typedef struct {
    nvmlDevice_t device;
    u64 eventType, eventData;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlEventData_t;
_Static_assert(sizeof(nvmlEventData_t) == 32, "nvmlEventData_t");

API nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *out)
{
    BEGIN(NO_GPU);
    REQUIRE(out);
    *out = calloc(1, sizeof **out);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    BEGIN(NO_GPU);
    free(set);
    return NVML_SUCCESS;
}

/* The XIDs of a GPU: second, number, second, number; NULL where it reports none. */
static const struct value *xids_of(const struct gpu *gpu)
{
    const struct value *value = table_find(&gpu->values, "xids");
    return value && value->kind == 's' ? value : NULL;
}

API nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, u64 *out)
{
    BEGIN_DEVICE(device);
    REQUIRE(out);
    *out = xids_of(call.gpu) ? SINGLE_BIT | DOUBLE_BIT | XID : 0;
    return NVML_SUCCESS;
}

static int is_due(const struct value *xids, int which, double now)
{
    return 2 * which + 1 < xids->terms && xids->term[2 * which] <= now;
}

/* What happened before is not told. */
API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, u64 types, nvmlEventSet_t set)
{
    BEGIN_DEVICE(device);
    REQUIRE(set);
    const struct value *xids = xids_of(call.gpu);
    if (xids == NULL || types & ~(u64)(SINGLE_BIT | DOUBLE_BIT | XID))
        return NVML_ERROR_NOT_SUPPORTED;
    set->registered[call.gpu_index] = (types & XID) != 0;
    while (is_due(xids, set->next[call.gpu_index], call.now)) set->next[call.gpu_index]++;
    return NVML_SUCCESS;
}

#if ERA >= 450   /* in CUDA 11.0's header */
/* Seconds until the next XID of a registered GPU; at most POLL_MS. */
static double until_next(const struct nvmlEventSet_st *set)
{
    const struct scenario *scenario = scenario_now();
    double least = POLL_MS / 1000.0;
    for (int gpu = 0; gpu < scenario->gpus && gpu < MAX_GPUS; gpu++) {
        const struct value *xids = xids_of(&scenario->gpu[gpu]);
        if (!set->registered[gpu] || xids == NULL || 2 * set->next[gpu] + 1 >= xids->terms) continue;
        double left = xids->term[2 * set->next[gpu]] - scenario_seconds(scenario);
        if (left > 0 && left < least) least = left;
    }
    return least;
}

/* Whether there is an event; the event, which is not told again. */
static int take(nvmlEventSet_t set, nvmlEventData_t *out)
{
    const struct scenario *scenario = scenario_now();
    for (int gpu = 0; gpu < scenario->gpus && gpu < MAX_GPUS; gpu++) {
        const struct value *xids = xids_of(&scenario->gpu[gpu]);
        int *next = &set->next[gpu];
        if (!set->registered[gpu] || xids == NULL) continue;
        if (!is_due(xids, *next, scenario_seconds(scenario))) continue;
        *out = (nvmlEventData_t){.device = device_handle(gpu, WHOLE_GPU),
                                 .eventType = XID,
                                 .eventData = (u64)xids->term[2 * (*next)++ + 1],
                                 .gpuInstanceId = 0xFFFFFFFF,
                                 .computeInstanceId = 0xFFFFFFFF};
        return 1;
    }
    return 0;
}

API nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *out, unsigned ms)
{
    BEGIN(NO_GPU);
    REQUIRE(set);
    REQUIRE(out);
    double end = monotonic_seconds() + ms / 1000.0;
    while (!take(set, out)) {
        double left = end - monotonic_seconds(), next = until_next(set);
        if (left <= 0) return NVML_ERROR_TIMEOUT;
        nanosleep(&(struct timespec){.tv_nsec = (long)((left < next ? left : next) * 1e9)}, NULL);
    }
    return NVML_SUCCESS;
}
#endif
