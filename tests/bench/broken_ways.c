/* Breaks ways between processes on purpose, for one program and nothing else: loaded in front of the C library by LD_PRELOAD.
 *
 *     UNHANG_BREAK=p2p   no file descriptor passes between processes: NCCL cannot share a GPU's memory (P2P/CUMEM)
 *     UNHANG_BREAK=shm   no file is made for NCCL in /dev/shm, as if it were full
 *     UNHANG_BREAK=net   nobody is reached but by way of this machine's loopback, as behind a firewall
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
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

int connect(int descriptor, const struct sockaddr *address, socklen_t length)
{
    static int (*real)(int, const struct sockaddr *, socklen_t);
    if (!real) real = (int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "connect");
    int away = address->sa_family == AF_INET && (ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24) != 127;
    away |= address->sa_family == AF_INET6 && !IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr)
            && !(IN6_IS_ADDR_V4MAPPED(&((const struct sockaddr_in6 *)address)->sin6_addr) && ((const struct sockaddr_in6 *)address)->sin6_addr.s6_addr[12] == 127);
    if (broken("net") && away) {
        errno = ENETUNREACH;
        return -1;
    }
    return real(descriptor, address, length);
}
