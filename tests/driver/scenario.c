/* Reads the flat scenario that flat.py writes: one record a line, fields split by one space.
 *
 *   start SECONDS | frozen SECONDS | latency MS | serialize 0|1
 *   value KEY VALUE...               of the machine, or of the GPU begun last
 *   gpu                              begins the next GPU
 *   process LIST PID GI CI TIME HOST OUTSIDE INNER NAMESPACE
 *                                    a process of that GPU; LIST is 0 compute, 1 graphics, 2 MPS
 *   of used|sm|mem|enc|dec VALUE...  of the process begun last
 *   rule PATTERN GPU ERROR MS BUSY HANG AFTER UNTIL
 *
 * VALUE is `n 12`, `w LOW HIGH PERIOD PHASE`, `s T V T V ...`, `t TEXT` (%XX escapes), `e CODE`.
 */
#include "machine.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Room for one more element of a growing array: doubled at every power of two. */
#define GROW(array, count)                                                            \
    do {                                                                              \
        if (((count) & ((count) - 1)) == 0)                                           \
            (array) = realloc((array), sizeof *(array) * ((count) ? 2 * (count) : 1)); \
    } while (0)

static char *word(char **rest)
{
    return strsep(rest, " ");
}

static double real(char **rest)
{
    char *text = word(rest);
    return text ? strtod(text, NULL) : 0;
}

static long integer(char **rest)
{
    char *text = word(rest);
    return text ? strtol(text, NULL, 10) : 0;
}

static char *unescaped(char *text)
{
    char *to = text;
    for (char *from = text; *from; from++) {
        unsigned byte;
        if (*from == '%' && sscanf(from + 1, "%2x", &byte) == 1) {
            *to++ = (char)byte;
            from += 2;
        } else {
            *to++ = *from;
        }
    }
    *to = '\0';
    return text;
}

static struct value read_value(char **rest)
{
    struct value value = {0};
    char *kind = word(rest);
    if (kind == NULL) return value;
    value.kind = *kind;
    if (value.kind == 't') {
        char *text = word(rest);
        value.text = text ? unescaped(text) : "";
    } else if (value.kind == 'n' || value.kind == 'e') {
        char *text = word(rest);
        value.number = text ? strtoull(text, NULL, 10) : 0;
    } else {
        while (*rest) {
            GROW(value.term, value.terms);
            value.term[value.terms++] = real(rest);
        }
    }
    return value;
}

static void read_entry(struct table *table, char **rest)
{
    GROW(table->entry, table->count);
    struct entry *entry = &table->entry[table->count++];
    entry->key = word(rest);
    entry->value = read_value(rest);
}

static struct process *read_process(struct gpu *gpu, char **rest)
{
    struct process_list *list = &gpu->list[integer(rest) % LISTS];
    GROW(list->process, list->count);
    struct process *process = &list->process[list->count++];
    memset(process, 0, sizeof *process);
    process->pid = (unsigned)integer(rest);
    process->gi = (unsigned)integer(rest);
    process->ci = (unsigned)integer(rest);
    process->sample_time = (u64)integer(rest);
    process->host_pid = (unsigned)integer(rest);
    process->outside = (int)integer(rest);
    process->inner_pid = (unsigned)integer(rest);
    process->inner_namespace = (u64)integer(rest);
    return process;
}

static void read_process_value(struct process *process, char **rest)
{
    char *name = word(rest);
    struct value value = read_value(rest);
    if (!strcmp(name, "used")) process->used = value;
    if (!strcmp(name, "sm")) process->sm = value;
    if (!strcmp(name, "mem")) process->mem = value;
    if (!strcmp(name, "enc")) process->enc = value;
    if (!strcmp(name, "dec")) process->dec = value;
}

static void read_rule(struct scenario *scenario, char **rest)
{
    GROW(scenario->rule, scenario->rules);
    struct rule *rule = &scenario->rule[scenario->rules++];
    rule->function = word(rest);
    rule->gpu = (int)integer(rest);
    rule->error = (int)integer(rest);
    rule->ms = real(rest);
    rule->is_busy = (int)integer(rest);
    rule->hang = (int)integer(rest);
    rule->after = real(rest);
    rule->until = real(rest);
}

static struct scenario *parsed(char *text)
{
    struct scenario *scenario = calloc(1, sizeof *scenario);
    struct table *values = &scenario->values;
    struct gpu *gpu = NULL;
    struct process *process = NULL;
    scenario->frozen_at = -1;
    scenario->text = text;
    for (char *line; (line = strsep(&text, "\n")) != NULL;) {
        char *record = word(&line);
        if (!strcmp(record, "start")) scenario->start = real(&line);
        else if (!strcmp(record, "frozen")) scenario->frozen_at = real(&line);
        else if (!strcmp(record, "latency")) scenario->latency_ms = real(&line);
        else if (!strcmp(record, "serialize")) scenario->serialize = (int)integer(&line);
        else if (!strcmp(record, "rule")) read_rule(scenario, &line);
        else if (!strcmp(record, "value")) read_entry(values, &line);
        else if (!strcmp(record, "process") && gpu) process = read_process(gpu, &line);
        else if (!strcmp(record, "of") && process) read_process_value(process, &line);
        else if (!strcmp(record, "gpu")) {
            GROW(scenario->gpu, scenario->gpus);
            gpu = &scenario->gpu[scenario->gpus++];
            memset(gpu, 0, sizeof *gpu);
            values = &gpu->values;
        }
    }
    return scenario;
}

static void free_table(struct table *table)
{
    for (int i = 0; i < table->count; i++) free(table->entry[i].value.term);
    free(table->entry);
}

static void free_scenario(struct scenario *scenario)
{
    for (int i = 0; i < scenario->gpus; i++) {
        struct gpu *gpu = &scenario->gpu[i];
        for (int kind = 0; kind < LISTS; kind++) {
            for (int k = 0; k < gpu->list[kind].count; k++) {
                struct process *process = &gpu->list[kind].process[k];
                free(process->used.term), free(process->sm.term), free(process->mem.term);
                free(process->enc.term), free(process->dec.term);
            }
            free(gpu->list[kind].process);
        }
        free_table(&gpu->values);
    }
    free_table(&scenario->values);
    free(scenario->gpu);
    free(scenario->rule);
    free(scenario->text);
    free(scenario);
}

static char *contents(const char *path, struct stat *status)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return NULL;
    char *text = NULL;
    if (fstat(fd, status) == 0 && (text = malloc((size_t)status->st_size + 1)) != NULL) {
        ssize_t size = read(fd, text, (size_t)status->st_size);
        text[size > 0 ? size : 0] = '\0';
    }
    close(fd);
    return text;
}

static int same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* A call of another thread may still be in a scenario that was replaced: it is kept for a while,
 * which who looks at the memory of a program for long makes shorter. */
static double kept_seconds(void)
{
    const char *text = getenv("GPUTOP_TEST_DRIVER_KEPT");
    return text ? strtod(text, NULL) : 60;
}

static void retire(struct scenario *scenario)
{
    static struct scenario *oldest, *newest;
    scenario->retired = monotonic_seconds();
    if (newest) newest->next = scenario;
    else oldest = scenario;
    newest = scenario;
    while (oldest->next && scenario->retired - oldest->retired > kept_seconds()) {
        struct scenario *next = oldest->next;
        free_scenario(oldest);
        oldest = next;
    }
}

const struct scenario *scenario_now(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct scenario *current;
    static struct stat current_status;
    const char *path = getenv("GPUTOP_TEST_DRIVER");
    struct stat status;

    if (path == NULL) return NULL;
    pthread_mutex_lock(&lock);
    if (stat(path, &status) == 0 && !(current && same_file(&status, &current_status))) {
        char *text = contents(path, &current_status);
        if (text) {
            if (current) retire(current);
            current = parsed(text);
        }
    }
    const struct scenario *scenario = current;
    pthread_mutex_unlock(&lock);
    return scenario;
}

double monotonic_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double scenario_seconds(const struct scenario *scenario)
{
    if (scenario->frozen_at >= 0) return scenario->frozen_at;
    return monotonic_seconds() - scenario->start;
}

const struct value *table_find(const struct table *table, const char *key)
{
    for (int i = 0; i < table->count; i++)
        if (!strcmp(table->entry[i].key, key)) return &table->entry[i].value;
    return NULL;
}

/* A triangle from low to high and back in one period. */
static double wave(const double *term, double now)
{
    double turn = now / term[2] + term[3];
    turn -= floor(turn);
    return term[0] + (term[1] - term[0]) * (turn < 0.5 ? 2 * turn : 2 - 2 * turn);
}

static double step(const struct value *value, double now)
{
    double last = value->term[1];
    for (int i = 0; i + 1 < value->terms && value->term[i] <= now; i += 2) last = value->term[i + 1];
    return last;
}

u64 value_number(const struct value *value, double now)
{
    if (value->kind == 'w' && value->terms == 4) return (u64)(long long)wave(value->term, now);
    if (value->kind == 's' && value->terms >= 2) return (u64)(long long)step(value, now);
    return value->number;
}
