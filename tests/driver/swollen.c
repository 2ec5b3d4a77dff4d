/* A process that makes of itself what others would have to read: `swollen cmdline=2147483648 fds=9`.
 *
 * cmdline, environ  bytes that /proc tells of them, by prctl(PR_SET_MM_MAP), which takes no
 *                   privilege: of zeros that are nowhere, after a first argument or variable
 * entries           variables of 8 bytes each, really there
 * misspelt          variables, each with another name that is nearly CUDA_VISIBLE_DEVICES
 * fill              a letter that `cmdline` or `environ` is filled with
 * fds, maps, threads, children   how many of each
 * nocuda            1: libcuda is not mapped
 *
 * What it opens is /dev/null, as often as it may; with FILE in the environment that last of all. One
 * byte on the standard output says that all of this is there.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>
#include <linux/prctl.h>

#include "libcuda.h"

static long asked(int argc, char **argv, const char *name)
{
    size_t length = strlen(name);
    for (int k = 1; k < argc; k++)
        if (strncmp(argv[k], name, length) == 0 && argv[k][length] == '=')
            return name[0] == 'f' && name[1] == 'i' ? argv[k][length + 1] : atol(argv[k] + length + 1);
    return 0;
}

static char *room(size_t size)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *start = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (start == MAP_FAILED) exit(2);
    return start;
}

static void tell(const char *arguments, size_t arguments_size, const char *variables, size_t size)
{
    unsigned long long of[52] = {0};
    char text[2048];
    int file = open("/proc/self/stat", O_RDONLY);
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    text[length > 0 ? length : 0] = '\0';
    char *rest = strrchr(text, ')');
    if (!rest) exit(3);
    strtok(rest, " ");                                  /* what is left of the name */
    for (int k = 3; k < 52; k++) {
        char *word = strtok(NULL, " ");
        of[k] = word ? strtoull(word, NULL, 10) : 0;
    }
    struct prctl_mm_map map = {
        .start_code = of[26], .end_code = of[27], .start_data = of[45], .end_data = of[46],
        .start_brk = of[47], .brk = (unsigned long) sbrk(0), .start_stack = of[28],
        .arg_start = of[48], .arg_end = of[49], .env_start = of[50], .env_end = of[51],
        .auxv = NULL, .auxv_size = 0, .exe_fd = (unsigned) -1,
    };
    if (arguments) {
        map.arg_start = (unsigned long) arguments;
        map.arg_end = map.arg_start + arguments_size;
    }
    if (variables) {
        map.env_start = (unsigned long) variables;
        map.env_end = map.env_start + size;
    }
    if (prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0) != 0) { perror("prctl"); exit(4); }
}

/* That many of one pattern, which has a number in letters at some place of it. */
static char *variables(long count, const char *pattern, size_t place, int digits, size_t *size)
{
    size_t length = strlen(pattern) + 1;
    char *block = room(*size = (size_t) count * length);
    for (long k = 0; k < count; k++) {
        char *at = block + (size_t) k * length;
        memcpy(at, pattern, length);
        for (long digit = 0, rest = k; digit < digits; digit++, rest /= 26)
            at[place + (size_t) digit] = (char) ('A' + rest % 26);
    }
    return block;
}

/* As many as are allowed; the last of them is FILE. */
static void open_files(long count)
{
    struct rlimit limit;
    const char *last = getenv("FILE");
    int null = open("/dev/null", O_RDONLY), newest = null;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    for (long k = 0; k < count; k++) {
        int next = dup(null);
        if (next < 0) break;
        newest = next;
    }
    close(newest);
    if (last && open(last, O_RDONLY) != newest) { perror(last); exit(5); }
}

static void map_pages(long count)
{
    size_t page = (size_t) sysconf(_SC_PAGESIZE);
    if (!count) return;
    char *start = room((size_t) count * page);
    for (long k = 0; k < count; k += 2)
        if (mprotect(start + (size_t) k * page, page, PROT_READ) != 0) { perror("mprotect"); exit(6); }
}

static void *sleeps(void *nothing)
{
    for (;;) pause();
    return nothing;
}

static void start_threads(long count)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 1 << 14);
    for (long k = 0; k < count; k++) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, sleeps, NULL) != 0) { perror("thread"); exit(7); }
    }
}

static void have_children(long count)
{
    for (long k = 0; k < count; k++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(STDOUT_FILENO);
            for (;;) pause();
        }
}

int main(int argc, char **argv)
{
    long cmdline = asked(argc, argv, "cmdline"), environ_size = asked(argc, argv, "environ");
    long entries = asked(argc, argv, "entries"), misspelt = asked(argc, argv, "misspelt");
    char fill = (char) asked(argc, argv, "fill"), *line = NULL, *block = NULL;
    size_t size = 0;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!asked(argc, argv, "nocuda") && map_libcuda() != 0) return 1;
    have_children(asked(argc, argv, "children"));
    open_files(asked(argc, argv, "fds"));
    map_pages(asked(argc, argv, "maps"));
    start_threads(asked(argc, argv, "threads"));
    if (cmdline) {
        line = room((size_t) cmdline);
        if (fill) memset(line, fill, (size_t) cmdline - 1);
        memcpy(line, "train", 5 + !fill);
    }
    if (environ_size) {
        block = room(size = (size_t) environ_size);
        if (fill) memset(block, fill, size - 1);
        memcpy(block, "CUDA_VISIBLE_DEVICES=0\0A=", 25);
        block[size - 2] = 'x';
    }
    if (entries) block = variables(entries, "VVVVV=1", 0, 5, &size);
    if (misspelt) block = variables(misspelt, "CUDA_VISIBLXX*******=12", 13, 7, &size);
    if (line || block) tell(line, (size_t) cmdline, block, size);
    if (write(STDOUT_FILENO, ".", 1) != 1) return 1;
    close(STDOUT_FILENO);
    for (;;) pause();
}
