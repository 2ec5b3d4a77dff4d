/* A process of a scenario: shows the argv and environment it was given, and waits to be killed.
 *
 * GPUTOP_TEST_CHILD in its environment: `burn` keeps one core busy, `stubborn` ignores SIGTERM,
 * SIGINT and SIGHUP. One byte on the standard output says that all of this is set up.
 *
 * As every CUDA program it has libcuda.so.1 mapped: the one that build.py puts beside it.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "libcuda.h"

static void ignore_signals(void)
{
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
}

int main(int argc, char **argv)
{
    const char *name = argc > 0 ? strrchr(argv[0], '/') : NULL;
    const char *manner = getenv("GPUTOP_TEST_CHILD");

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, name ? name + 1 : argc > 0 ? argv[0] : "");
    if (manner && strcmp(manner, "stubborn") == 0) ignore_signals();
    if (map_libcuda() != 0) return 1;
    if (write(STDOUT_FILENO, ".", 1) != 1) return 1;   /* the parent is gone */
    close(STDOUT_FILENO);
    for (volatile int busy = manner && strcmp(manner, "burn") == 0;;)
        if (!busy) pause();
}
