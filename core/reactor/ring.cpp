// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/metrics.hpp>
#include <verbena/core/reactor/ring.hpp>
#include <verbena/core/reactor/voluntary_switches.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <liburing.h>
#include <sys/uio.h>
#include <utility>
#include <vector>

namespace verbena {

using detail::add_single_writer;

struct ring::impl {
    struct slot {
        ring_completion* target = nullptr;
        std::uint32_t generation = 0;
        std::uint32_t next_free = 0;
    };
    static constexpr std::uint32_t end_of_list = 0xffffffff;
    static constexpr std::uint64_t ignored = ~std::uint64_t(0); // user_data of cancels

    io_uring uring{};
    clock_source* clock = nullptr;
    bool taskrun_flag = false;
    bool reads_waiting = false; // among the entries not handed over yet
    std::vector<slot> slots;
    std::uint32_t free_head = end_of_list;
    ring_stats stats;

    io_uring_sqe* entry() noexcept
    {
        io_uring_sqe* sqe = io_uring_get_sqe(&uring);
        if (sqe == nullptr) {
            submit();
            sqe = io_uring_get_sqe(&uring);
        }
        return sqe;
    }
    void submit() noexcept
    {
        const bool begins_reads = std::exchange(reads_waiting, false);
        const time_point before = begins_reads ? clock->now() : time_point();
        const std::int64_t switches = begins_reads ? voluntary_switches() : 0;
        const int n = io_uring_submit(&uring);
        if (begins_reads && voluntary_switches() != switches) {
            const std::chrono::nanoseconds took = clock->now() - before;
            add_single_writer(stats.reads_begun_nanoseconds, static_cast<std::uint64_t>(took.count()));
        }
        add_single_writer(stats.enters, 1);
        if (n > 0)
            add_single_writer(stats.submitted, static_cast<unsigned>(n));
    }
    std::uint32_t take_slot()
    {
        if (free_head != end_of_list) {
            const std::uint32_t index = free_head;
            free_head = slots[index].next_free;
            return index;
        }
        if (slots.size() == max_slots)
            return end_of_list;
        slots.emplace_back();
        return static_cast<std::uint32_t>(slots.size() - 1);
    }
    void free_slot(std::uint32_t index) noexcept
    {
        slots[index].target = nullptr;
        ++slots[index].generation;
        slots[index].next_free = free_head;
        free_head = index;
    }
    std::uint64_t user_data(std::uint32_t index) const noexcept
    {
        return std::uint64_t(slots[index].generation) << 32 | index;
    }
};

ring::ring(std::unique_ptr<impl> i) noexcept : impl_(std::move(i)) {}

ring::~ring() { io_uring_queue_exit(&impl_->uring); }

result<std::unique_ptr<ring>> ring::create(unsigned entries, unsigned masked, clock_source& clock)
{
    auto i = std::make_unique<impl>();
    i->clock = &clock;
    unsigned flags = IORING_SETUP_CLAMP;
    const auto want = [&](ring_feature f) { return (masked & static_cast<unsigned>(f)) == 0; };
    if (want(ring_feature::single_issuer)) {
        flags |= IORING_SETUP_SINGLE_ISSUER;
        // DEFER_TASKRUN needs SINGLE_ISSUER, and without TASKRUN_FLAG a loop that only peeks sees nothing.
        if (want(ring_feature::defer_taskrun))
            flags |= IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
    }
    int rc = io_uring_queue_init(entries, &i->uring, flags);
    if (rc == -EINVAL && flags != IORING_SETUP_CLAMP) {
        flags = IORING_SETUP_CLAMP;
        rc = io_uring_queue_init(entries, &i->uring, flags);
    }
    if (rc < 0) {
        const char* cure = "io_uring_setup failed";
        if (rc == -EPERM || rc == -EACCES)
            cure = "io_uring is refused: allow it with sysctl kernel.io_uring_disabled=0 and in the "
                   "service's seccomp filter";
        else if (rc == -ENOSYS)
            cure = "this kernel has no io_uring: Linux 6.1 or later is needed";
        else if (rc == -ENOMEM)
            cure = "io_uring could not lock memory: raise RLIMIT_MEMLOCK (ulimit -l)";
        return error::from_errno(-rc, cure);
    }
    i->taskrun_flag = (flags & IORING_SETUP_TASKRUN_FLAG) != 0;
    i->slots.reserve(256);
    return std::unique_ptr<ring>(new ring(std::move(i)));
}

template<class Prepare>
result<void> ring::start(ring_completion& target, Prepare prepare)
{
    const std::uint32_t index = impl_->take_slot();
    if (index == impl::end_of_list)
        return error(std::errc::no_buffer_space, "ring operations in flight", max_slots);
    io_uring_sqe* sqe = impl_->entry();
    if (sqe == nullptr) {
        impl_->free_slot(index);
        return error(std::errc::no_buffer_space, "ring submission queue is full");
    }
    prepare(sqe);
    sqe->user_data = impl_->user_data(index);
    impl_->slots[index].target = &target;
    target.slot_ = index;
    return {};
}

result<void> ring::poll_once(int fd, unsigned events, ring_completion& target)
{
    return start(target, [&](io_uring_sqe* sqe) { io_uring_prep_poll_add(sqe, fd, events); });
}

result<void> ring::read(int fd, std::span<std::byte> to, std::uint64_t offset, ring_completion& target)
{
    const auto size = static_cast<unsigned>(std::min<std::size_t>(to.size(), INT_MAX));
    return start(target, [&](io_uring_sqe* sqe) {
        io_uring_prep_read(sqe, fd, to.data(), size, offset);
        impl_->reads_waiting = true;
    });
}

result<void> ring::write(int fd, std::span<const std::byte> from, std::uint64_t offset, bool through,
                         ring_completion& target)
{
    const auto size = static_cast<unsigned>(std::min<std::size_t>(from.size(), INT_MAX));
    return start(target, [&](io_uring_sqe* sqe) {
        io_uring_prep_write(sqe, fd, from.data(), size, offset);
        sqe->rw_flags = through ? RWF_DSYNC : 0;
    });
}

void ring::detach(ring_completion& target) noexcept
{
    if (target.slot_ == ring_completion::no_slot)
        return;
    const std::uint32_t index = target.slot_;
    if (io_uring_sqe* sqe = impl_->entry()) {
        io_uring_prep_cancel64(sqe, impl_->user_data(index), 0);
        sqe->user_data = impl::ignored;
    }
    target.slot_ = ring_completion::no_slot;
    impl_->free_slot(index);
}

void ring::submit() noexcept
{
    if (io_uring_sq_ready(&impl_->uring) != 0)
        impl_->submit();
}

bool ring::deliver() noexcept
{
    bool any = false;
    io_uring_cqe* cqe = nullptr;
    // What is there now: operations that targets start may complete at once, and start others.
    for (unsigned left = io_uring_cq_ready(&impl_->uring);
         left != 0 && io_uring_peek_cqe(&impl_->uring, &cqe) == 0 && cqe != nullptr; --left) {
        const std::uint64_t data = cqe->user_data;
        const std::int32_t res = cqe->res;
        io_uring_cqe_seen(&impl_->uring, cqe);
        any = true;
        if (data == impl::ignored)
            continue;
        const auto index = static_cast<std::uint32_t>(data);
        const auto generation = static_cast<std::uint32_t>(data >> 32);
        if (index >= impl_->slots.size() || impl_->slots[index].generation != generation ||
            impl_->slots[index].target == nullptr) {
            add_single_writer(impl_->stats.stale, 1);
            continue;
        }
        ring_completion* target = impl_->slots[index].target;
        target->slot_ = ring_completion::no_slot;
        impl_->free_slot(index);
        target->on_complete(res);
    }
    return any;
}

bool ring::reap() noexcept
{
    const unsigned flags = IO_URING_READ_ONCE(*impl_->uring.sq.kflags);
    if ((flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0) {
        add_single_writer(impl_->stats.enters, 1);
        io_uring_get_events(&impl_->uring);
    }
    return deliver();
}

bool ring::wait(std::optional<duration> timeout) noexcept
{
    add_single_writer(impl_->stats.enters, 1);
    const unsigned ready = io_uring_sq_ready(&impl_->uring);
    io_uring_cqe* cqe = nullptr;
    // Errors are a signal, the time limit, or a kernel short of memory: what was not taken stays for next time.
    if (timeout) {
        const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(*timeout).count();
        __kernel_timespec ts{};
        ts.tv_sec = ns / 1'000'000'000;
        ts.tv_nsec = ns % 1'000'000'000;
        io_uring_submit_and_wait_timeout(&impl_->uring, &cqe, 1, &ts, nullptr);
    } else {
        io_uring_submit_and_wait(&impl_->uring, 1);
    }
    add_single_writer(impl_->stats.submitted, ready - io_uring_sq_ready(&impl_->uring));
    return deliver();
}

result<void> ring::tell(int eventfd)
{
    set_telling(false);
    if (const int rc = io_uring_register_eventfd(&impl_->uring, eventfd); rc < 0)
        return error::from_errno(-rc, "io_uring_register_eventfd");
    return {};
}

void ring::set_telling(bool on) noexcept
{
    io_uring_cq_eventfd_toggle(&impl_->uring, on);
    // The kernel marks that there is work, then looks whether to tell; is_quiet() looks after this: one of the two sees it.
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool ring::is_quiet() const noexcept
{
    const unsigned flags = IO_URING_READ_ONCE(*impl_->uring.sq.kflags);
    return (flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) == 0 &&
           io_uring_cq_ready(&impl_->uring) == 0 && io_uring_sq_ready(&impl_->uring) == 0;
}

const ring_stats& ring::stats() const noexcept { return impl_->stats; }

} // namespace verbena
