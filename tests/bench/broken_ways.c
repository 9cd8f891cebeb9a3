/* Breaks ways between processes on purpose, for one program and nothing else: loaded in front of the C library by LD_PRELOAD.
 *
 *     UNHANG_BREAK=p2p   no file descriptor passes between processes: NCCL cannot share a GPU's memory (P2P/CUMEM)
 *     UNHANG_BREAK=shm   no file is made for NCCL in /dev/shm, as if it were full
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static int broken(const char *way)
{
    const char *asked = getenv("UNHANG_BREAK");
    return asked && !strcmp(asked, way);
}

ssize_t sendmsg(int descriptor, const struct msghdr *message, int flags)
{
    static ssize_t (*real)(int, const struct msghdr *, int);
    if (!real) real = (ssize_t (*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT, "sendmsg");
    if (broken("p2p"))
        for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR((struct msghdr *)message, part))
            if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS) {
                errno = EPERM;
                return -1;
            }
    return real(descriptor, message, flags);
}

static int refused(const char *template)
{
    return broken("shm") && !strncmp(template, "/dev/shm/nccl-", 14);
}

int mkstemp(char *template)
{
    static int (*real)(char *);
    if (!real) real = (int (*)(char *))dlsym(RTLD_NEXT, "mkstemp");
    if (refused(template)) {
        errno = ENOSPC;
        return -1;
    }
    return real(template);
}

int mkstemp64(char *template)
{
    return mkstemp(template);
}
