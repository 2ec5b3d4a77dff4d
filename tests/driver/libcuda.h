/* Maps libcuda.so.1, as every CUDA program has it: the one that build.py puts beside the program. */
#pragma once
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int map_libcuda(void)
{
    char own[PATH_MAX] = "", path[PATH_MAX + 32];
    if (readlink("/proc/self/exe", own, sizeof own - 1) < 0) return -1;
    snprintf(path, sizeof path, "%.*s/580/libcuda.so.1", (int)(strrchr(own, '/') - own), own);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    void *mapped = mmap(NULL, 1, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    return mapped == MAP_FAILED ? -1 : 0;
}
