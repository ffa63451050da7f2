// SPDX-License-Identifier: Apache-2.0
// Who goes next: the clients of one export or device, their buckets and their queues.
#pragma once

#include "bucket.hpp"

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/random.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/stop.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/plugins/limit.hpp>

#include <coroutine>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace verbena::filters {

/// All shards use it, under one mutex. Every client is in one of three states: idle (in idle_, by when it was last there),
/// throttled (its timer is armed for when its own buckets have enough for the first in its queue), or ready (in ready_, by
/// whose turn it is at the export's buckets).
class limiter {
    class client;
    struct shard_timer;

public:
    static constexpr std::size_t longest_name = 256; ///< bytes of a client's name that count

    enum class outcome : std::uint8_t { waits, passed, cancelled, refused };

    /// A coroutine that wants to pass. Lives in its frame.
    class awaiter final : public list_hook, public remote_message {
    public:
        awaiter(limiter& all, std::string_view name, std::uint64_t bytes) noexcept
            : limiter_(all), name_(name.substr(0, longest_name)), bytes_(bytes)
        {
        }
        bool await_ready() const noexcept { return false; }
        template<class Promise>
        bool await_suspend(std::coroutine_handle<Promise> h)
        {
            handle_ = h;
            const task_context* context = h.promise().context();
            mark_.set(h, "its turn by the filter limit");
            const bool waits = limiter_.waits(*this, *context->shard, context->stop);
            if (!waits)
                mark_.clear();
            return waits;
        }
        outcome await_resume() noexcept
        {
            if (timer_ != nullptr)
                limiter_.resumed(*this);
            return outcome_;
        }
        void deliver() noexcept override
        {
            mark_.clear();
            shard_->post(handle_);
        }

    private:
        friend class limiter;
        class listener final : public stop_listener {
        public:
            explicit listener(awaiter& a) noexcept : awaiter_(a) {}
            void on_stop() noexcept override { awaiter_.limiter_.stop(awaiter_); }

        private:
            awaiter& awaiter_;
        };

        limiter& limiter_;
        const std::string_view name_;
        const std::uint64_t bytes_;
        std::coroutine_handle<> handle_;
        wait_mark mark_;
        reactor* shard_ = nullptr;
        client* client_ = nullptr;
        shard_timer* timer_ = nullptr; // once it is in a queue
        time_point since_{};
        outcome outcome_ = outcome::waits;
        listener listener_{*this};
    };

    /// EINVAL for an option out of its range.
    static result<void> check(const limit_options& options);
    /// Of options that passed.
    explicit limiter(const limit_options& options);
    limiter(const limiter&) = delete;
    ~limiter();

    /// `co_await enter(...)` takes one operation and `bytes` from the buckets, after a wait if need be. Within a scope.
    awaiter enter(std::string_view name, std::uint64_t bytes) noexcept { return awaiter(*this, name, bytes); }
    /// Takes them if that needs no wait and nobody waits who is before them.
    bool try_enter(std::string_view name, std::uint64_t bytes, time_point now);
    /// Gives bytes back that were paid for and not moved. On a shard.
    void give_back(std::string_view name, std::uint64_t bytes) noexcept;

    limit_counters counters() const noexcept;

private:
    using queue = intrusive_list<awaiter>;

    class client final : public list_hook, public timer {
    public:
        client(limiter& all, const fill_rate& operations_rate, const fill_rate& bytes_rate) noexcept
            : operations(operations_rate), bytes(bytes_rate), limiter_(all)
        {
        }
        void on_timer() noexcept override { limiter_.ready_.push_back(*this); }

        const std::string* name = nullptr;
        bucket operations;
        bucket bytes;
        queue waiting;
        std::size_t waiting_count = 0;

    private:
        limiter& limiter_;
    };
    // Wakes a shard, on which somebody waits, when it may be the next one's time.
    struct shard_timer final : timer {
        explicit shard_timer(limiter& all) noexcept : owner(all) {}
        void on_timer() noexcept override { owner.tick(*this); }
        limiter& owner;
        reactor* shard = nullptr;
        std::size_t users = 0; // awaiters that were queued and have not resumed; the timer is armed only then
    };
    struct name_hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view name) const noexcept
        {
            return siphash(key, std::as_bytes(std::span(name)));
        }
        siphash_key key; // peers choose their addresses, within limits
    };

    // With mutex_ held:
    client* find_or_add(std::string_view name);
    bool passes_at_once(client& c, std::uint64_t bytes, time_point now) noexcept;
    void take(client& c, std::uint64_t bytes) noexcept;
    std::uint64_t* refusal(const client* c) noexcept;
    static duration lacks(bucket& operations, bucket& bytes, std::uint64_t n, time_point now) noexcept
    {
        return std::max(operations.lacks(1, now), bytes.lacks(n, now));
    }
    shard_timer& timer_of(reactor& shard);
    void leave_queue(awaiter& a) noexcept;
    void look_again(client& c) noexcept;
    void pump(time_point now, queue& passed) noexcept;
    void arm(shard_timer& t) noexcept;

    // Without it:
    bool waits(awaiter& a, reactor& shard, const stop_token& stop);
    void resumed(awaiter& a) noexcept;
    void stop(awaiter& a) noexcept;
    void tick(shard_timer& t) noexcept;
    static void wake(queue& passed, const reactor& here) noexcept;

    const limit_options options_;
    const fill_rate client_operations_;
    const fill_rate client_bytes_;
    const fill_rate total_operations_;
    const fill_rate total_bytes_;

    mutable std::mutex mutex_;
    bucket operations_;
    bucket bytes_;
    timer_queue throttled_;
    intrusive_list<client> ready_;
    intrusive_list<client> idle_;
    std::optional<time_point> total_opens_; // when the first of ready_ may go; nothing if ready_ is empty
    std::list<shard_timer> timers_;
    limit_counters counters_;
    std::unordered_map<std::string, client, name_hash, std::equal_to<>> clients_{
        8, name_hash{system_random().key()}};
};

} // namespace verbena::filters
