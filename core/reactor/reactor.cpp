// SPDX-License-Identifier: Apache-2.0
#include "../task/debug_layout.hpp"
#include "../task/left_scope.hpp"
#include "late_parts.hpp"
#include "stall_watch.hpp"
#include "wake_descriptor.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/reactor/io_watch.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/reactor/request_list.hpp>
#include <verbena/core/task/left_behind.hpp>

#include <algorithm>
#include <cerrno>
#include <poll.h>
#include <sys/eventfd.h>
#include <thread>
#include <typeinfo>
#include <unistd.h>

namespace verbena {
namespace {

thread_local reactor* current_reactor = nullptr;

constexpr auto stall_limit = std::chrono::milliseconds(1);
// A turn looks at its event sources again, so often and after so few resumptions, before it ends.
constexpr unsigned light_rounds = 31;
constexpr std::size_t light_batch = 4;

// Stands in the inbox of a reactor that sleeps, and in no other: whoever posts a message in its place wakes the reactor.
class asleep_mark final : public remote_message {
public:
    void deliver() noexcept override {}
};
constinit asleep_mark asleep;

class steady_clock_source final : public clock_source {
public:
    time_point now() const noexcept override { return std::chrono::steady_clock::now(); }
};

void add_to(std::atomic<std::uint64_t>& counter, std::uint64_t n) noexcept
{
    counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

std::uint64_t nanoseconds(duration d) noexcept
{
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(d).count());
}

} // namespace

clock_source& system_clock() noexcept
{
    static steady_clock_source clock;
    return clock;
}

result<wait_policy> parse_wait_policy(std::string_view name)
{
    for (auto policy : {wait_policy::busy, wait_policy::adaptive, wait_policy::event}) {
        if (name == to_string(policy))
            return policy;
    }
    return error(std::errc::invalid_argument, "policy must be busy, adaptive or event");
}

std::string_view to_string(wait_policy policy) noexcept
{
    switch (policy) {
    case wait_policy::busy: return "busy";
    case wait_policy::adaptive: return "adaptive";
    case wait_policy::event: return "event";
    }
    return "?";
}

// The eventfd through which other threads end the shard's sleep, and where a host loop sleeps for it, the ring too.
class reactor::waker final : public ring_completion {
public:
    waker(ring& r, int fd) noexcept : ring_(r), fd_(fd), polled_(fd) {}
    ~waker()
    {
        ring_.detach(*this);
        ::close(fd_);
    }
    bool arm() noexcept { return ring_.in_flight(*this) || bool(ring_.poll_once(polled_, POLLIN, *this)); }
    // From now on arm() polls `fd` instead, which is readable when the eventfd is; whoever looks at it clears it.
    void arm_by(int fd) noexcept
    {
        ring_.detach(*this);
        polled_ = fd;
    }
    void leave_ring() noexcept { ring_.detach(*this); }
    int fd() const noexcept { return fd_; }
    void signal() const noexcept
    {
        const std::uint64_t one = 1;
        [[maybe_unused]] const auto n = ::write(fd_, &one, sizeof one);
    }
    void on_complete(std::int32_t) noexcept override
    {
        if (polled_ != fd_)
            return;
        std::uint64_t count = 0;
        [[maybe_unused]] const auto n = ::read(fd_, &count, sizeof count);
    }

    detail::late_parts late; // here since only this file knows both types

private:
    ring& ring_;
    int fd_;
    int polled_;
};

reactor::reactor(const reactor_options& options)
    : options_(options),
      kernel_thread_(::gettid()),
      clock_(options.clock != nullptr ? options.clock : &system_clock()),
      order_(options.seed),
      seeded_(options.seed),
      requests_(std::make_unique<request_list>(*this))
{
    run_queue_.reserve(1024);
    detail::debug_layout::enlist(*this);
}

result<std::unique_ptr<reactor>> reactor::create(const reactor_options& options)
{
    std::unique_ptr<reactor> r(new reactor(options));
    auto ring = ring::create(options.ring_entries, options.masked_ring_features, *r->clock_);
    if (!ring)
        return ring.error();
    r->ring_ = std::move(*ring);
    const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return error::from_errno(errno, "eventfd");
    r->waker_ = std::make_unique<waker>(*r->ring_, fd);
    r->now_ = r->last_work_ = r->clock_->now();
    return r;
}

detail::late_parts& detail::left_scope::late(reactor& r) noexcept { return r.waker_->late; }

reactor::~reactor()
{
    if (waker_ != nullptr) { // else it was never whole
        end_left_behind(*this);
        waker_->late.threads.reset(); // they may still touch the reactor that they brought a job back to
    }
    detail::debug_layout::strike_out(*this);
    detail::left_scope::never_ended(*this);
    // It is seldom so, and for a few instructions only; to spin could keep a thread of lower priority from them.
    while (senders_.load(std::memory_order_acquire) != 0)
        std::this_thread::sleep_for(std::chrono::microseconds(10));
    drain_remote();
    if (current_reactor == this)
        current_reactor = nullptr;
}

reactor* reactor::current() noexcept { return current_reactor; }

void reactor::stop() noexcept
{
    senders_.fetch_add(1, std::memory_order_relaxed);
    stop_.store(true, std::memory_order_seq_cst);
    waker_->signal();
    senders_.fetch_sub(1, std::memory_order_release);
}

// The message may end the reactor as soon as it is in the inbox. So nothing of the reactor is touched after that, unless
// this sender has to wake it: then the destructor waits for the sender, who was counted before.
void reactor::post_remote(remote_message& message) noexcept
{
    remote_message* head = inbox_.load(std::memory_order_relaxed);
    while (head != &asleep) {
        message.next_ = head;
        if (inbox_.compare_exchange_weak(head, &message, std::memory_order_release,
                                         std::memory_order_relaxed))
            return;
    }
    senders_.fetch_add(1, std::memory_order_relaxed);
    do {
        message.next_ = head != &asleep ? head : nullptr;
    } while (
        !inbox_.compare_exchange_weak(head, &message, std::memory_order_release, std::memory_order_relaxed));
    // The first sender of many wakes it.
    if (head == &asleep) {
        stats_.wakes.fetch_add(1, std::memory_order_relaxed);
        waker_->signal();
    }
    senders_.fetch_sub(1, std::memory_order_release);
}

// False when there are messages.
bool reactor::fall_asleep() noexcept
{
    remote_message* there = nullptr;
    return inbox_.compare_exchange_strong(there, &asleep, std::memory_order_relaxed) || there == &asleep;
}

void reactor::wake_up() noexcept
{
    remote_message* there = &asleep;
    inbox_.compare_exchange_strong(there, nullptr, std::memory_order_relaxed);
}

void reactor::count_illegal_transition() noexcept { add_to(stats_.illegal_transitions, 1); }

bool reactor::drain_remote() noexcept
{
    const remote_message* const head = inbox_.load(std::memory_order_relaxed);
    if (head == nullptr || head == &asleep)
        return false;
    remote_message* list = inbox_.exchange(nullptr, std::memory_order_acquire);
    remote_message* in_order = nullptr;
    while (list != nullptr) {
        remote_message* next = list->next_;
        list->next_ = in_order;
        in_order = list;
        list = next;
    }
    std::uint64_t n = 0;
    while (in_order != nullptr) {
        remote_message* message = in_order;
        in_order = message->next_;
        message->deliver();
        ++n;
    }
    add_to(stats_.remote_messages, n);
    return n != 0;
}

// `what` says what is done, before it is done. Where steps are not timed, which is nearly always, this costs one test
// of a pointer.
template<class What, class F>
auto reactor::step(What what, F f)
{
    return watch_ == nullptr ? f() : watch_->step(what(), f);
}

void reactor::resume(std::coroutine_handle<> handle)
{
#ifndef NDEBUG
    detail::left_scope::check(*this);
#endif
    if (watch_ == nullptr)
        handle.resume();
    else
        watch_->resume(handle);
}

bool reactor::poll_watches() noexcept
{
    bool any = false;
    for (unsigned left = hot_count_; left > 0 && !hot_.empty(); --left) {
        io_watch* watch = hot_.front();
        hot_.push_back(*watch);
        polled_ = watch;
        const bool worked =
            step([watch] { return typeid(*watch).name(); }, [watch] { return watch->on_readable(); });
        if (polled_ != watch) { // destroyed by its own callback
            any = true;
            continue;
        }
        polled_ = nullptr;
        if (worked) {
            any = true;
            watch->idle_turns_ = 0;
        } else if (watch->hot_ && ++watch->idle_turns_ > watch->tries_) {
            watch->arm_read();
        }
    }
    // Each was tried; those tried longest ago make room.
    while (hot_count_ > max_hot_watches && hot_.front()->arm_read()) {
    }
    return any;
}

bool reactor::poll_sources()
{
    bool any = false;
    for (event_source* s = sources_.front(); s != nullptr;) {
        event_source* next = sources_.next(*s);
        any |= step([s] { return typeid(*s).name(); }, [s] { return s->poll(); });
        s = next;
    }
    return any;
}

void reactor::run_deferred(intrusive_list<deferred>& list, std::size_t& ran)
{
    // Only what is there now: what it defers in turn waits for the next look.
    intrusive_list<deferred> batch;
    while (deferred* d = list.pop_front())
        batch.push_back(*d);
    while (deferred* d = batch.pop_front()) {
        ++ran;
        // It may be gone afterwards, and its name is not.
        step([d] { return typeid(*d).name(); },
             [d] {
                 d->run();
                 return true;
             });
    }
}

std::size_t reactor::run_ready()
{
    std::size_t ran = 0;
    std::size_t done = 0; // of the run queue, which grows behind it meanwhile
    // Only what was ready when the phase began: work that keeps posting work must not starve the polls.
    for (int rounds = 0; rounds < 16 && !(deferred_.empty() && done == run_queue_.size()); ++rounds) {
        if (!deferred_.empty())
            run_deferred(deferred_, ran);
        const std::size_t end = run_queue_.size();
        if (options_.seed != 0) {
            for (std::size_t i = end; i > done + 1; --i) {
                order_ = order_ * 6364136223846793005ULL + 1442695040888963407ULL;
                std::swap(run_queue_[i - 1], run_queue_[done + (order_ >> 33) % (i - done)]);
            }
        }
        ran += end - done;
        while (done != end)
            resume(run_queue_[done++]);
    }
    if (done == run_queue_.size())
        run_queue_.clear();
    else
        run_queue_.erase(run_queue_.begin(), run_queue_.begin() + static_cast<std::ptrdiff_t>(done));
    // Likewise: a handler that answers each completion with new work must not keep the shard here.
    if (!turn_end_.empty())
        run_deferred(turn_end_, ran);
    return ran;
}

bool reactor::turn()
{
    reactor* const outer = std::exchange(current_reactor, this);
    // Inside run() one turn begins when the other ends: a clock read costs as much as a small operation.
    if (outer != this)
        now_ = clock_->now();
    const time_point start = now_;
    if (watch_ != nullptr)
        watch_->begin();
    bool any = step([] { return "messages of other threads"; }, [this] { return drain_remote(); });
    any |= step([] { return "timers"; }, [this] { return timers_.expire(now_); });
    any |= step([] { return "completions of the ring"; }, [this] { return ring_->reap(); });
    if (nested_ != nullptr)
        any |= nested_->look([](io_watch& watch) { watch.readable(); });
    any |= poll_watches();
    any |= poll_sources();
    std::size_t ran = run_ready();
    any |= ran != 0;
    // One operation after the other: completions cost less to look for than timers, the ring, sockets and the clock do. A
    // batch may have taken long, so that only a few resumptions at a time go on without a look at those.
    for (unsigned round = 0; round < light_rounds && ran != 0 && ran <= light_batch && poll_sources();
         ++round)
        ran = run_ready();
    if (!last_.empty()) {
        run_deferred(last_, ran);
        any = true;
    }
    ring_->submit();
    add_to(stats_.turns, 1);
    const time_point end = clock_->now();
    const duration took = end - start;
    if (any) {
        last_work_ = end;
        add_to(stats_.busy_nanoseconds, nanoseconds(took));
        if (took > stall_limit) {
            add_to(stats_.stalls, 1);
            add_to(stats_.stall_nanoseconds, nanoseconds(took));
            if (took >= stall_watch::limit)
                turn_was_long(took);
        }
    } else {
        add_to(stats_.spin_nanoseconds, nanoseconds(took));
    }
    if (watch_ != nullptr && end >= watch_->until && watch_->has_name())
        watch_.reset();
    now_ = end;
    current_reactor = outer;
    return any;
}

// Nobody was served meanwhile: neither a timer nor a peer. The log says for how long, and by what if steps were timed.
void reactor::turn_was_long(duration took) noexcept
{
    if (!log_enabled(log_level::info))
        return; // nobody would see it
    try {
        const bool timed = watch_ != nullptr;
        if (!timed)
            watch_ = std::make_unique<stall_watch>(*clock_);
        watch_->until = clock_->now() + stall_watch::watches_for;
        if (!long_turns_)
            long_turns_ = std::make_unique<log_limiter>(5, std::chrono::seconds(60));
        std::uint64_t suppressed = 0;
        if (!long_turns_->admit(clock_->now(), suppressed))
            return;
        const stall_watch::turn long_one{index(), took, suppressed};
        if (!timed)
            stall_watch::log(long_one, "not timed; the next one within a minute is named");
        else if (watch_->longest() < took / 2)
            stall_watch::log(long_one, "many short steps");
        else
            watch_->log_with_name(long_one);
    } catch (const std::exception&) { // no memory to tell of it
    }
}

bool reactor::arm_sources() noexcept
{
    for (event_source* s = sources_.front(); s != nullptr; s = sources_.next(*s)) {
        if (s->pending() || !s->try_arm()) {
            for (event_source* armed = sources_.front(); armed != s; armed = sources_.next(*armed))
                armed->disarm();
            return false;
        }
    }
    return true;
}

// A watch that the ring refuses (table full) stays hot, and then the shard can't sleep.
bool reactor::arm_watches() noexcept
{
    while (io_watch* watch = hot_.front()) {
        if (!watch->arm_read())
            return false;
    }
    return true;
}

bool reactor::arm_all() noexcept
{
    if (!arm_sources())
        return false;
    if (!arm_watches() || !waker_->arm()) {
        disarm_all();
        return false;
    }
    if (!fall_asleep() || stop_.load(std::memory_order_seq_cst)) {
        wake_up();
        disarm_all();
        return false;
    }
    return true;
}

void reactor::disarm_all() noexcept
{
    for (event_source* s = sources_.front(); s != nullptr; s = sources_.next(*s))
        s->disarm();
}

result<int> reactor::native_handle()
{
    if (nested_ == nullptr) {
        auto made = wake_descriptor::create(waker_->fd());
        if (!made)
            return made.error();
        if (const auto told = ring_->tell(waker_->fd()); !told)
            return told.error();
        nested_ = std::move(*made);
        waker_->arm_by(nested_->get());
        // What waits in the ring shall wait in there.
        while (io_watch* watch = in_ring_.front())
            watch->leave_ring();
    }
    return nested_->get();
}

bool reactor::try_arm() noexcept
{
    if (nested_ == nullptr || !run_queue_.empty() || !deferred_.empty() || !turn_end_.empty() ||
        !last_.empty())
        return false;
    const auto next = timers_.next();
    const time_point now = next || !armed_ ? clock_->now() : time_point();
    if (next && *next <= now)
        return false;
    if (!armed_) {
        if (!arm_sources())
            return false;
        armed_ = true;
        armed_at_ = now;
        waker_->leave_ring();
        ring_->set_telling(true);
    } else {
        // The host may have used what is the reactor's since it was armed.
        for (event_source* s = sources_.front(); s != nullptr; s = sources_.next(*s)) {
            if (s->pending())
                return false;
        }
    }
    // Refused from here on it stays armed: poll(), which must come now, disarms it.
    if (!arm_watches())
        return false;
    ring_->submit();
    // What came before the ring tells of it, or before the reactor fell asleep, made nothing readable.
    if (!fall_asleep() || !ring_->is_quiet())
        return false;
    return clock_->is_virtual() || nested_->readable_at(next, now);
}

bool reactor::poll()
{
    disarm_nested();
    return turn();
}

void reactor::disarm_nested() noexcept
{
    if (!armed_)
        return;
    armed_ = false;
    wake_up();
    ring_->set_telling(false);
    disarm_all();
    add_to(stats_.sleeps, 1);
    add_to(stats_.sleep_nanoseconds, nanoseconds(clock_->now() - armed_at_));
}

void reactor::sleep()
{
    if (!arm_all())
        return;
    const time_point before = clock_->now();
    if (nested_ != nullptr)
        nested_->readable_at(std::nullopt, before); // a time that the host was to wait for
    std::optional<duration> timeout;
    if (const auto next = timers_.next())
        timeout = std::max<duration>(*next - before, duration::zero());
    reactor* const outer = std::exchange(current_reactor, this);
    ring_->wait(timeout);
    current_reactor = outer;
    wake_up();
    disarm_all();
    now_ = clock_->now();
    last_work_ = now_;
    add_to(stats_.sleeps, 1);
    add_to(stats_.sleep_nanoseconds, nanoseconds(now_ - before));
}

bool reactor::has_pending_source() noexcept
{
    for (event_source* s = sources_.front(); s != nullptr; s = sources_.next(*s)) {
        if (s->pending())
            return true;
    }
    return false;
}

bool reactor::has_work() noexcept
{
    const remote_message* const message = inbox_.load(std::memory_order_relaxed);
    if ((message != nullptr && message != &asleep) || !run_queue_.empty() || !deferred_.empty() ||
        !turn_end_.empty() || !last_.empty())
        return true;
    const auto next = timers_.next();
    return (next && *next <= clock_->now()) || has_pending_source();
}

// Nothing is ready and time is ours: jump to the next timer. False when nothing can ever happen.
bool reactor::idle_virtual()
{
    if (has_pending_source())
        return true;
    const auto next = timers_.next();
    if (!next)
        return false;
    clock_->advance_to(*next);
    now_ = clock_->now();
    return true;
}

run_end reactor::run()
{
    disarm_nested();
    run_end why = run_end::stopped;
    reactor* const outer = std::exchange(current_reactor, this);
    now_ = clock_->now();
    bool spins = false;                              // in an idle period that is spun through
    while (!stop_.load(std::memory_order_acquire)) { // whoever stopped it was counted before
        if (turn()) {
            if (std::exchange(spins, false)) {
                spin_choice_.paid();
                add_to(stats_.spins_paid, 1);
            }
            continue;
        }
        if (clock_->is_virtual()) {
            if (!idle_virtual()) {
                why = run_end::nothing_left;
                break;
            }
            continue;
        }
        if (options_.policy == wait_policy::busy)
            continue;
        if (options_.policy == wait_policy::adaptive && options_.spin > duration::zero()) {
            spins = spins || spin_choice_.spins();
            if (spins && now_ - last_work_ < options_.spin)
                continue;
            if (std::exchange(spins, false)) {
                spin_choice_.was_in_vain();
                add_to(stats_.spins_in_vain, 1);
            }
        }
        sleep();
    }
    // Tasks may run before the first turn, and stop the loop there; what they left for its end is still due. Not what that
    // defers in turn: a watch that the ring refuses does so for ever.
    std::size_t ran = 0;
    run_deferred(turn_end_, ran);
    stop_.store(false, std::memory_order_relaxed);
    current_reactor = outer;
    return why;
}

// --- io_watch ---

io_watch::io_watch(reactor& r, int fd, std::uint32_t tries) noexcept : reactor_(r), fd_(fd), tries_(tries) {}

io_watch::~io_watch() { stop(); }

void io_watch::stop() noexcept
{
    wants_read_ = false;
    leave_hot();
    leave_nested();
    unlink();
    reactor_.io().detach(read_);
    reactor_.io().detach(write_);
    write_refused_.unlink();
    write_pending_ = false;
    if (reactor_.polled_ == this)
        reactor_.polled_ = nullptr;
}

void io_watch::want_read(bool wanted) noexcept
{
    if (wants_read_ == wanted)
        return;
    wants_read_ = wanted;
    if (wanted) {
        if (!reactor_.io().in_flight(read_))
            make_hot();
    } else {
        leave_hot();
        leave_nested();
    }
}

void io_watch::want_write() noexcept
{
    if (write_pending_)
        return;
    write_pending_ = true;
    arm_write();
}

void io_watch::arm_write() noexcept
{
    if (!reactor_.io().poll_once(fd_, POLLOUT, write_))
        reactor_.at_turn_end(write_refused_);
}

void io_watch::make_hot() noexcept
{
    if (hot_)
        return;
    idle_turns_ = 0;
    hot_ = true;
    ++reactor_.hot_count_;
    reactor_.hot_.push_back(*this);
}

void io_watch::leave_hot() noexcept
{
    if (!hot_)
        return;
    hot_ = false;
    --reactor_.hot_count_;
    unlink();
}

bool io_watch::arm_read() noexcept
{
    if (!in_nested_ && !reactor_.io().in_flight(read_)) {
        in_nested_ = reactor_.nested_ != nullptr && reactor_.nested_->add(fd_, *this);
        if (!in_nested_ && !reactor_.io().poll_once(fd_, POLLIN | POLLRDHUP, read_))
            return false;
    }
    leave_hot();
    if (!in_nested_)
        reactor_.in_ring_.push_back(*this);
    return true;
}

void io_watch::leave_ring() noexcept
{
    unlink();
    reactor_.io().detach(read_);
    readable();
}

void io_watch::leave_nested() noexcept
{
    if (in_nested_)
        reactor_.nested_->remove(fd_);
    in_nested_ = false;
}

void io_watch::readable() noexcept
{
    if (wants_read_)
        make_hot();
}

void io_watch::armed::on_complete(std::int32_t) noexcept
{
    if (write_) {
        watch_.write_pending_ = false;
        watch_.on_writable();
    } else {
        watch_.unlink();
        watch_.readable();
    }
}

} // namespace verbena
