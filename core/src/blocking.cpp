// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/blocking.hpp>

#include <algorithm>
#include <csignal>
#include <system_error>

namespace verbena {

blocking_pool::blocking_pool(unsigned threads, std::string name)
    : name_(std::move(name)), since_(std::clamp(threads, 1u, max_threads))
{
    threads = static_cast<unsigned>(since_.size());
    // Signals belong to the main thread; a pool thread interrupted in a slow call would lose it.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    threads_.reserve(threads);
    try {
        for (unsigned i = 0; i < threads; ++i)
            threads_.emplace_back([this, i] { work(i); });
    } catch (const std::system_error&) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        finish();
        throw;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

blocking_pool::~blocking_pool() { finish(); }

void blocking_pool::finish()
{
    {
        std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    wake_.notify_all();
    for (auto& t : threads_)
        t.join();
    threads_.clear();
}

void blocking_pool::submit(job& j, reactor& home) { enqueue(j, &home); }

bool blocking_pool::enqueue(job& j, reactor* home)
{
    j.home_ = home;
    j.next_job_ = nullptr;
    {
        std::lock_guard lock(mutex_);
        if (home == nullptr && stopping_)
            return false;
        if (tail_ != nullptr)
            tail_->next_job_ = &j;
        else
            head_ = &j;
        tail_ = &j;
        ++queued_;
    }
    wake_.notify_one();
    return true;
}

blocking_pool::occupation blocking_pool::look() const
{
    const auto now = std::chrono::steady_clock::now();
    occupation out;
    {
        std::lock_guard lock(mutex_);
        out.queued = queued_;
    }
    for (const auto& since : since_) {
        const std::int64_t begun = since.load(std::memory_order_relaxed);
        if (begun == 0)
            continue;
        ++out.running;
        out.longest =
            std::max(out.longest, now.time_since_epoch() - std::chrono::steady_clock::duration(begun));
    }
    return out;
}

void blocking_pool::work(std::size_t index)
{
    std::unique_lock lock(mutex_);
    for (;;) {
        wake_.wait(lock, [this] { return head_ != nullptr || stopping_; });
        if (head_ == nullptr)
            return;
        job* j = head_;
        head_ = j->next_job_;
        if (head_ == nullptr)
            tail_ = nullptr;
        --queued_;
        lock.unlock();
        since_[index].store(std::chrono::steady_clock::now().time_since_epoch().count(),
                            std::memory_order_relaxed);
        reactor* home = j->home_;
        j->execute();                                      // without a home it may be gone after this
        since_[index].store(0, std::memory_order_relaxed); // before anybody hears of its end
        if (home != nullptr)
            home->post_remote(*j); // the frame may be gone after this
        lock.lock();
    }
}

} // namespace verbena
