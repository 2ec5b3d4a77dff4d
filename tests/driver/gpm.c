/* What the parts of a GPU, or of a GPU instance, do between two samples.
 *
 * A sample remembers whose it is and when it was taken; the values are those of the scenario at
 * the time of the question. */
#include "machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if ERA >= 535   /* approximate: NVML's Hopper header, CUDA 12, has these */

typedef struct { unsigned version, isSupportedDevice; } nvmlGpmSupport_t;
typedef struct sample { int gpu, slot; double taken; } *nvmlGpmSample_t;
typedef struct {
    unsigned metricId;
    nvmlReturn_t nvmlReturn;
    double value;
    const char *shortName, *longName, *unit;
} nvmlGpmMetric_t;
typedef struct {
    unsigned version, numMetrics;
    nvmlGpmSample_t sample1, sample2;
    nvmlGpmMetric_t metrics[];   /* NVML_GPM_METRIC_MAX of them, which grows with NVML */
} nvmlGpmMetricsGet_t;
_Static_assert(sizeof(nvmlGpmMetric_t) == 40, "nvmlGpmMetric_t");
_Static_assert(sizeof(nvmlGpmMetricsGet_t) == 24, "nvmlGpmMetricsGet_t");

static const struct { unsigned id; const char *key; } METRICS[] = {
    {1, "gpm.graphics"}, {2, "gpm.sm"}, {3, "gpm.occupancy"}, {5, "gpm.tensor"},
    {10, "gpm.dram"}, {11, "gpm.fp64"}, {12, "gpm.fp32"}, {13, "gpm.fp16"},
    {20, "gpm.pcie_tx"}, {21, "gpm.pcie_rx"}, {60, "gpm.nvlink_rx"}, {61, "gpm.nvlink_tx"},
};
enum { KNOWN = sizeof METRICS / sizeof *METRICS };

static int is_measured(const struct call *call)
{
    char prefix[32] = "gpm.";
    if (call->slot != WHOLE_GPU) snprintf(prefix, sizeof prefix, "mig.%d.gpm.", call->slot);
    for (int i = 0; i < call->gpu->values.count; i++)
        if (!strncmp(call->gpu->values.entry[i].key, prefix, strlen(prefix))) return 1;
    return 0;
}

API nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *out)
{
    BEGIN_DEVICE(device);
    REQUIRE(out);
    if (out->version != 1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    out->isSupportedDevice = 0;
    for (call.slot = WHOLE_GPU; call.slot < MAX_SLOTS; call.slot++)
        if (is_measured(&call)) out->isSupportedDevice = 1;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *out)
{
    BEGIN(NO_GPU);
    REQUIRE(out);
    *out = calloc(1, sizeof **out);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample)
{
    BEGIN(NO_GPU);
    REQUIRE(sample);
    free(sample);
    return NVML_SUCCESS;
}

static nvmlReturn_t take(const struct call *call, nvmlGpmSample_t sample)
{
    REQUIRE(sample);
    if (!is_measured(call)) return NVML_ERROR_NOT_SUPPORTED;
    *sample = (struct sample){call->gpu_index, call->slot, monotonic_seconds()};
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample)
{
    BEGIN_DEVICE(device);
    return take(&call, sample);
}

API nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned gi, nvmlGpmSample_t sample)
{
    BEGIN_DEVICE(device);
    if (call.slot != WHOLE_GPU) return NVML_ERROR_INVALID_ARGUMENT;
    for (call.slot = 0; call.slot < MAX_SLOTS; call.slot++)
        if (has_slot(call.gpu, call.slot) && number_or(&call, "gi", ~0ULL) == gi)
            return take(&call, sample);
    return NVML_ERROR_NOT_FOUND;
}

static void answer(const struct call *call, nvmlGpmMetric_t *metric)
{
    u64 number = 0;
    char text[8];
    const char *key = NULL;
    for (int i = 0; i < KNOWN; i++)
        if (METRICS[i].id == metric->metricId) key = METRICS[i].key;
    metric->nvmlReturn = key ? get_u64(call, key, &number) : NVML_ERROR_INVALID_ARGUMENT;
    metric->value = (double)number;
    if (key && get_text(call, key, text, sizeof text) == NVML_SUCCESS) metric->value = NAN;
}

API nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get)
{
    REQUIRE(get);
    nvmlGpmSample_t before = get->sample1, after = get->sample2;
    REQUIRE(before);
    REQUIRE(after);
    BEGIN(after->gpu);
    if (get->version != 1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (before->gpu != after->gpu || before->slot != after->slot || before->taken >= after->taken)
        return NVML_ERROR_INVALID_ARGUMENT;
    call.slot = after->slot;
    for (unsigned i = 0; i < get->numMetrics; i++) answer(&call, &get->metrics[i]);
    return NVML_SUCCESS;
}
#endif
