// SPDX-License-Identifier: Apache-2.0
// Preloaded into a process, counts its heap allocations into the file that MALLOC_COUNT names: the first
// eight bytes are the count, native order. Only for the benchmark of allocations.
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
}

namespace {

std::atomic<std::uint64_t> before_the_file;
std::atomic<std::atomic<std::uint64_t>*> counter{&before_the_file};

void count() noexcept { counter.load(std::memory_order_relaxed)->fetch_add(1, std::memory_order_relaxed); }

[[gnu::constructor]] void open_file()
{
    const char* path = std::getenv("MALLOC_COUNT");
    if (path == nullptr)
        return;
    const int fd = ::open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ::ftruncate(fd, 4096) != 0)
        return;
    void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    if (page != MAP_FAILED)
        counter.store(static_cast<std::atomic<std::uint64_t>*>(page), std::memory_order_relaxed);
}

} // namespace

extern "C" {

void* malloc(std::size_t n)
{
    count();
    return __libc_malloc(n);
}

void* calloc(std::size_t n, std::size_t size)
{
    count();
    return __libc_calloc(n, size);
}

void* realloc(void* p, std::size_t n)
{
    count();
    return __libc_realloc(p, n);
}

void* memalign(std::size_t alignment, std::size_t n)
{
    count();
    return __libc_memalign(alignment, n);
}

void* aligned_alloc(std::size_t alignment, std::size_t n)
{
    count();
    return __libc_memalign(alignment, n);
}

int posix_memalign(void** out, std::size_t alignment, std::size_t n)
{
    count();
    void* p = __libc_memalign(alignment, n);
    if (p == nullptr)
        return ENOMEM;
    *out = p;
    return 0;
}
}
