/* A driver's library that hangs in one call: built with -DHANGS_IN=nvmlDeviceGetCount_v2 and linked before the real one, which answers all other calls.
 * The real library is initialised, then the call never returns, as when the driver waits for a GPU that is gone. */
#include <unistd.h>

int HANGS_IN(void)
{
    for (;;) pause();
}
