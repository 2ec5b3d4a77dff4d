/* A process that nobody can read: blocked FILE [executes]
 *
 * One thread holds the lock of the process's memory, since it reads a page of FILE that never comes,
 * and another waits for that lock, so that whoever reads the memory waits behind it. With a second
 * word another process of the same memory executes a program, and waits for the lock in that.
 * It writes the PID of what is blocked, and an empty line when that is so, after a byte of standard
 * input, with which it ends. FILE fails at the first reading (tests/fuse.py): a second attempt keeps
 * the lock.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile char *page;
static int map[2], execute[2];
static char byte;

static void *touches(void *none)
{
    (void)page[0];
    return none;
}

static void *maps(void *none)
{
    if (read(map[0], &byte, 1) == 1)
        mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return none;
}

static int executes(void *none)
{
    (void)none;
    if (read(execute[0], &byte, 1) == 1)
        execl("/bin/sleep", "sleep", "1000", (char *)NULL);
    _exit(1);
}

int main(int count, char **words)
{
    char *stack = malloc(65536);
    int file = count > 1 ? open(words[1], O_RDONLY) : -1, pid = getpid();
    pthread_t thread;

    page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0);
    if (page == MAP_FAILED || pipe(map) || pipe(execute) || !stack)
        return 1;
    if (count > 2)
        pid = clone(executes, stack + 65536, CLONE_VM | SIGCHLD, NULL);
    dprintf(1, "%d\n", pid);
    pthread_create(&thread, NULL, maps, NULL);
    pthread_create(&thread, NULL, touches, NULL);
    /* From here on nothing may take memory: whoever asks for some waits for the lock. */
    if (read(0, &byte, 1) != 1 || write(map[1], "x", 1) != 1)
        return 1;
    usleep(100000); /* nothing tells when the thread is in mmap(2) */
    if (write(execute[1], "x", 1) != 1)
        return 1;
    usleep(100000);
    if (write(1, "\n", 1) != 1)
        return 1;
    while (read(0, &byte, 1) > 0)
        ;
    _exit(0);
}
