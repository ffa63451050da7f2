// SPDX-License-Identifier: Apache-2.0
// disk_ways FILE read|sync ring|pool DEPTH COUNT: COUNT calls that wait for a disk, DEPTH at a time, by io_uring or by the
// blocking pool. read: 4 KiB of FILE at random, none in the page cache and none twice. sync: 4 KiB written to a file of
// its own beside FILE and brought to the disk. Prints one line of JSON with what they cost.
#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/task/scope.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <liburing.h>
#include <random>
#include <string>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

using namespace verbena;

namespace {

constexpr std::size_t block = 4096;

[[noreturn]] void die(const char* what, int failed)
{
    std::fprintf(stderr, "disk_ways: %s: %s\n", what, std::strerror(failed));
    std::exit(1);
}

struct work {
    bool sync = false;
    unsigned depth = 1;
    std::size_t count = 0;
    int file = -1;
    std::vector<off_t> offsets; // of read
    std::vector<int> own;       // of sync, one for each of `depth`
    std::vector<std::array<char, block>> memory;
    std::size_t next = 0;

    bool done() const noexcept { return next == count; }
    off_t take() noexcept
    {
        const std::size_t n = next++;
        return sync ? 0 : offsets[n];
    }
    /// What sync's calls write is not measured: both ways do it at once.
    void write(unsigned lane) const
    {
        if (sync && ::pwrite(own[lane], memory[lane].data(), block, 0) != ssize_t(block))
            die("write", errno);
    }
};

void by_ring(work& w)
{
    io_uring ring{};
    if (const int failed =
            io_uring_queue_init(w.depth, &ring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
        failed != 0)
        die("io_uring", -failed);
    const auto submit = [&](unsigned lane) {
        io_uring_sqe* e = io_uring_get_sqe(&ring);
        const off_t at = w.take();
        w.write(lane);
        if (w.sync)
            io_uring_prep_fsync(e, w.own[lane], 0);
        else
            io_uring_prep_read(e, w.file, w.memory[lane].data(), block, static_cast<std::uint64_t>(at));
        io_uring_sqe_set_data64(e, lane);
    };
    unsigned out = 0;
    for (; out < w.depth && !w.done(); ++out)
        submit(out);
    while (out != 0) {
        if (const int n = io_uring_submit_and_wait(&ring, 1); n < 0)
            die("io_uring_enter", -n);
        for (io_uring_cqe* c = nullptr; io_uring_peek_cqe(&ring, &c) == 0;) {
            if (c->res < 0 || (!w.sync && c->res != int(block)))
                die("a call by the ring", c->res < 0 ? -c->res : EIO);
            const auto lane = static_cast<unsigned>(c->user_data);
            io_uring_cqe_seen(&ring, c);
            --out;
            if (!w.done()) {
                submit(lane);
                ++out;
            }
        }
    }
    io_uring_queue_exit(&ring);
}

task<void> one_lane(work& w, blocking_pool& pool, unsigned lane)
{
    while (!w.done()) {
        const off_t at = w.take();
        w.write(lane);
        auto job = [&w, lane, at]() noexcept -> int {
            if (w.sync)
                return ::fsync(w.own[lane]) == 0 ? 0 : errno;
            const ssize_t n = ::pread(w.file, w.memory[lane].data(), block, at);
            return n == ssize_t(block) ? 0 : n < 0 ? errno : EIO;
        };
        const int failed = co_await pool.run(std::move(job));
        if (failed != 0)
            die("a call on the pool", failed);
    }
}

task<void> all_lanes(work& w, blocking_pool& pool, reactor& shard)
{
    scope lanes(shard);
    for (unsigned lane = 0; lane < w.depth; ++lane)
        lanes.spawn([&] { return one_lane(w, pool, lane); });
    co_await lanes.join();
}

void by_pool(work& w)
{
    reactor_options o;
    o.policy = wait_policy::event; // as the ring's loop, which sleeps at once
    auto shard = reactor::create(o);
    if (!shard)
        die("a reactor", shard.error().errno_value());
    blocking_pool pool;
    run_until_complete(**shard, all_lanes(w, pool, **shard));
    pool.finish();
}

} // namespace

int main(int argc, char** argv)
{
    if (argc != 6) {
        std::fputs("usage: disk_ways FILE read|sync ring|pool DEPTH COUNT\n", stderr);
        return 2;
    }
    const std::string path = argv[1];
    const bool ring = std::string(argv[3]) == "ring";
    work w;
    w.sync = std::string(argv[2]) == "sync";
    w.depth = std::max(1u, static_cast<unsigned>(std::strtoul(argv[4], nullptr, 10)));
    w.count = std::strtoul(argv[5], nullptr, 10);
    w.memory.resize(w.depth);
    w.file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (w.file < 0)
        die(argv[1], errno);
    if (w.sync) {
        for (unsigned lane = 0; lane < w.depth; ++lane) {
            const std::string own = path + "." + std::to_string(lane);
            w.own.push_back(::open(own.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
            if (w.own.back() < 0)
                die(own.c_str(), errno);
            ::unlink(own.c_str());
        }
    } else {
        const off_t blocks = ::lseek(w.file, 0, SEEK_END) / off_t(block);
        for (off_t n = 0; n < blocks; ++n)
            w.offsets.push_back(n * off_t(block));
        std::shuffle(w.offsets.begin(), w.offsets.end(), std::mt19937(7)); // NOLINT: the same order each time
        if (w.count > w.offsets.size())
            die("COUNT is more than FILE has blocks", EINVAL);
        if (const int failed = ::posix_fadvise(w.file, 0, 0, POSIX_FADV_RANDOM); failed != 0)
            die("fadvise", failed);
        if (const int failed = ::posix_fadvise(w.file, 0, 0, POSIX_FADV_DONTNEED); failed != 0)
            die("fadvise", failed);
    }
    const auto begun = std::chrono::steady_clock::now();
    ring ? by_ring(w) : by_pool(w);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    const double cpu = double(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                       double(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    std::printf(
        "{\"what\": \"%s\", \"way\": \"%s\", \"depth\": %u, \"per_second\": %.0f, \"cpu_us\": %.2f}\n",
        argv[2], argv[3], w.depth, double(w.count) / took.count(), cpu / double(w.count) * 1e6);
    return 0;
}
