// SPDX-License-Identifier: Apache-2.0
// Preloaded into a server, it makes every sync a lie: a test of what survives a loss of power must then fail.
#include <cstddef>
#include <dlfcn.h>
#include <fcntl.h>
#include <liburing.h>
#include <sys/uio.h>
#include <unistd.h>

namespace {

// What is about to be handed over: writes that were to be stable are plain ones.
void forget(io_uring* ring)
{
    for (unsigned i = ring->sq.sqe_head; i != ring->sq.sqe_tail; ++i) {
        io_uring_sqe& entry = ring->sq.sqes[i & *ring->sq.kring_mask];
        if (entry.opcode == IORING_OP_WRITE)
            entry.rw_flags = 0;
    }
}

template<class F>
F* next(const char* name)
{
    return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

} // namespace

extern "C" {

int fsync(int) { return 0; }
int fdatasync(int) { return 0; }
int syncfs(int) noexcept { return 0; }
int sync_file_range(int, off64_t, off64_t, unsigned) { return 0; }
void sync() noexcept {}

ssize_t pwritev2(int fd, const iovec* vectors, int count, off_t offset, int)
{
    return ::pwritev(fd, vectors, count, offset);
}
int io_uring_submit(io_uring* ring)
{
    forget(ring);
    return next<decltype(io_uring_submit)>("io_uring_submit")(ring);
}
int io_uring_submit_and_wait(io_uring* ring, unsigned wanted)
{
    forget(ring);
    return next<decltype(io_uring_submit_and_wait)>("io_uring_submit_and_wait")(ring, wanted);
}
int io_uring_submit_and_wait_timeout(io_uring* ring, io_uring_cqe** cqe, unsigned wanted,
                                     __kernel_timespec* timeout, sigset_t* mask)
{
    forget(ring);
    return next<decltype(io_uring_submit_and_wait_timeout)>("io_uring_submit_and_wait_timeout")(
        ring, cqe, wanted, timeout, mask);
}
}
