// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/reactor/blocking.hpp>

#include "late_parts.hpp"
#include "signals_blocked.hpp"

#include <algorithm>
#include <pthread.h>
#include <system_error>

namespace verbena {

struct blocking_crew::worker : list_hook {
    std::thread thread;
    std::condition_variable wake;
    blocking_pool* lane = nullptr;
    std::atomic<std::int64_t> begun{0}; // when its job began, steady_clock; 0: it has none
    std::atomic<unsigned> wakers{0};    // who will wake it; the crew does not go before they have

    /// With or without the lock, once for each time that it was given a lane out of idle_.
    void wake_up() noexcept
    {
        wake.notify_one();
        wakers.fetch_sub(1, std::memory_order_release); // it may be gone after this
    }
};

blocking_crew::blocking_crew(options o) : options_(o)
{
    const detail::signals_blocked blocked; // a thread interrupted in a slow call would lose it
    starter_ = std::thread([this] {
        pthread_setname_np(pthread_self(), "blocking start");
        std::unique_lock lock(mutex_);
        start_threads(lock);
    });
}

blocking_crew::~blocking_crew() { finish(); }

void blocking_crew::finish()
{
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        for (worker* w = idle_.front(); w != nullptr; w = idle_.next(*w))
            w->wake.notify_one();
        start_.notify_one();
    }
    if (starter_.joinable())
        starter_.join();
    for (const auto& w : workers_) {
        while (w->wakers.load(std::memory_order_acquire) != 0)
            std::this_thread::yield();
    }
}

std::size_t blocking_crew::threads() const
{
    const std::lock_guard lock(mutex_);
    return running_;
}

void blocking_crew::start_threads(std::unique_lock<std::mutex>& lock) noexcept
{
    for (;;) {
        while (worker* w = gone_.pop_front()) {
            lock.unlock();
            w->thread.join();
            lock.lock();
            free_.push_back(*w);
        }
        if (unserved_.empty()) {
            if (stopping_ && running_ == 0)
                return;
            start_.wait(lock);
        } else if (!start_one(lock)) {
            failures_.fetch_add(1, std::memory_order_relaxed);
            const std::size_t there = running_;
            lock.unlock();
            log_limited(failed_log_, log_level::error, "core",
                        "no thread can be started for calls that block, which wait; raise the limit of "
                        "threads (ulimit -u, "
                        "TasksMax=), or lower blocking_threads",
                        {{"threads", there}});
            lock.lock();
            start_.wait_for(lock, retry_interval, [this] { return unserved_.empty() || !gone_.empty(); });
        }
    }
}

bool blocking_crew::start_one(std::unique_lock<std::mutex>& lock) noexcept
{
    worker* w = free_.pop_front();
    try {
        if (w == nullptr) {
            workers_.push_back(std::make_unique<worker>());
            w = workers_.back().get();
        }
        serve_first(*w);
        ++running_;
        lock.unlock();
        std::thread started([this, w] { work(*w); });
        lock.lock();
        w->thread = std::move(started); // this thread alone looks at it
        return true;
    } catch (...) { // std::system_error, std::bad_alloc
    }
    if (!lock.owns_lock())
        lock.lock();
    if (w == nullptr)
        return false;
    blocking_pool* const lane = w->lane;
    w->lane = nullptr;
    free_.push_back(*w);
    --running_;
    if (lane->unserved_++ == 0)
        unserved_.push_front(lane->unserved_place_);
    if (worker* other = idle_.pop_front()) {
        serve_first(*other);
        other->wake.notify_one();
    }
    return false;
}

// It gets the lane that has waited longest for a thread, if one has.
void blocking_crew::serve_first(worker& w) noexcept
{
    place* const first = unserved_.front();
    if (first == nullptr)
        return;
    blocking_pool& lane = first->lane;
    if (--lane.unserved_ == 0)
        first->unlink();
    w.lane = &lane;
    lane.at_work_.push_back(w);
}

// A job was queued: one thread more for it, within the bounds. If that is the first of idle_, which then has a lane, the caller wakes it.
void blocking_crew::want(blocking_pool& lane) noexcept
{
    if (lane.members_ == lane.most_)
        return;
    if (lane.members_ != 0) { // the first is its own
        if (shared_ == options_.shared) {
            if (!lane.wanting_place_.is_linked())
                wanting_.push_back(lane.wanting_place_);
            return;
        }
        ++shared_;
    }
    ++lane.members_;
    if (lane.unserved_++ == 0)
        unserved_.push_back(lane.unserved_place_);
    if (worker* w = idle_.pop_front()) {
        serve_first(*w);
        w->wakers.fetch_add(1, std::memory_order_relaxed);
    } else {
        start_.notify_one();
    }
}

void blocking_crew::detach(worker& w) noexcept
{
    blocking_pool& lane = *std::exchange(w.lane, nullptr);
    w.unlink();
    if (--lane.members_ != 0) {
        --shared_;
        while (shared_ < options_.shared) {
            place* const other = wanting_.pop_front();
            if (other == nullptr)
                break;
            blocking_pool& wants = other->lane;
            if (wants.queued_ == 0)
                continue;
            worker* const idle = idle_.front();
            want(wants);
            if (idle != nullptr && idle->lane != nullptr)
                idle->wake_up();
            if (wants.queued_ > 1 && wants.members_ != wants.most_)
                wanting_.push_back(*other);
        }
    } else if (lane.stopping_) {
        lane_ended_.notify_all(); // with the lock: the lane may be gone after it
    }
    serve_first(w);
}

void blocking_crew::work(worker& self) noexcept
{
    pthread_setname_np(pthread_self(), "blocking");
    std::unique_lock lock(mutex_);
    for (;;) {
        if (self.lane == nullptr) {
            idle_.push_front(self);
            self.wake.wait_until(lock, std::chrono::steady_clock::now() + options_.idle,
                                 [&] { return self.lane != nullptr || stopping_; });
            if (self.lane == nullptr) {
                gone_.push_back(self);
                --running_;
                start_.notify_one();
                return;
            }
        }
        blocking_pool& lane = *self.lane;
        while (blocking_pool::job* j = lane.head_) {
            lane.head_ = j->next_job_;
            if (lane.head_ == nullptr)
                lane.tail_ = nullptr;
            --lane.queued_;
            // With the lock: whoever looks sees it wait or run.
            self.begun.store(std::chrono::steady_clock::now().time_since_epoch().count(),
                             std::memory_order_relaxed);
            lock.unlock();
            reactor* const home = j->home_;
            j->execute();                                   // without a home it may be gone after this
            self.begun.store(0, std::memory_order_relaxed); // before anybody hears of its end
            if (home != nullptr)
                home->post_remote(*j); // the frame may be gone after this
            lock.lock();
        }
        detach(self);
    }
}

blocking_pool::blocking_pool(unsigned threads, std::string name)
    : blocking_pool(std::make_unique<blocking_crew>(), threads, std::move(name))
{
}

blocking_pool::blocking_pool(blocking_crew& crew, unsigned threads, std::string name)
    : name_(std::move(name)), crew_(crew), most_(std::clamp(threads, 1u, max_threads))
{
}

blocking_pool::blocking_pool(std::unique_ptr<blocking_crew> own, unsigned threads, std::string name)
    : name_(std::move(name)), own_(std::move(own)), crew_(*own_), most_(std::clamp(threads, 1u, max_threads))
{
}

blocking_pool::~blocking_pool() { finish(); }

void blocking_pool::finish()
{
    {
        std::unique_lock lock(crew_.mutex_);
        stopping_ = true;
        crew_.lane_ended_.wait(lock, [this] { return members_ == 0; });
        wanting_place_.unlink();
    }
    if (own_)
        own_->finish();
}

bool blocking_pool::finish_if_idle() noexcept
{
    const std::lock_guard lock(crew_.mutex_);
    if (queued_ != 0)
        return false;
    for (auto* w = at_work_.front(); w != nullptr; w = at_work_.next(*w)) {
        if (w->begun.load(std::memory_order_relaxed) != 0)
            return false;
    }
    return stopping_ = true;
}

bool blocking_pool::enqueue(job& j, reactor* home, bool may_be_refused)
{
    j.home_ = home;
    j.next_job_ = nullptr;
    blocking_crew::worker* idle = nullptr;
    {
        const std::lock_guard lock(crew_.mutex_);
        if ((home == nullptr && stopping_) || (may_be_refused && queued_ >= max_queued))
            return false;
        if (tail_ != nullptr)
            tail_->next_job_ = &j;
        else
            head_ = &j;
        tail_ = &j;
        ++queued_;
        idle = crew_.idle_.front();
        crew_.want(*this);
        if (idle != nullptr && idle->lane == nullptr)
            idle = nullptr;
    }
    // Without the lock, which it takes as the first thing that it does. The lane, and the job, may be gone by now.
    if (idle != nullptr)
        idle->wake_up();
    return true;
}

error blocking_pool::refusal() noexcept
{
    refused_.fetch_add(1, std::memory_order_relaxed);
    log_limited(refused_log_, log_level::warning, "core",
                "a lane's queue is full, so callers are told to come again; see what hangs beneath, or raise "
                "blocking_threads",
                {{"lane", name_}, {"waiting", max_queued}});
    return error(std::errc::resource_unavailable_try_again, "calls that wait for a thread", max_queued);
}

blocking_pool::occupation blocking_pool::look() const
{
    const auto now = std::chrono::steady_clock::now();
    occupation out;
    const std::lock_guard lock(crew_.mutex_);
    out.queued = queued_;
    for (auto* w = at_work_.front(); w != nullptr; w = at_work_.next(*w)) {
        const std::int64_t begun = w->begun.load(std::memory_order_relaxed);
        if (begun == 0)
            continue;
        ++out.running;
        out.longest =
            std::max(out.longest, now.time_since_epoch() - std::chrono::steady_clock::duration(begun));
    }
    return out;
}

result<own_threads*> own_threads_of(reactor& shard) noexcept
{
    detail::late_parts& late = detail::left_scope::late(shard);
    try {
        if (!late.threads)
            late.threads = std::make_unique<own_threads>();
        return late.threads.get();
    } catch (...) { // std::system_error, std::bad_alloc: of own_threads
        return error_of(std::current_exception(),
                        "no thread can be started for calls that block; raise the limit of "
                        "threads (ulimit -u, TasksMax=)");
    }
}

} // namespace verbena
