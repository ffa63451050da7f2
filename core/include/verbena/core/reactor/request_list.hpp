// SPDX-License-Identifier: Apache-2.0
// request_list: what a shard serves at this moment, for whoever asks what a service is waiting for.
//
// A protocol derives its call from listed_request and says when the call begins and ends. From then on `verbena admin requests` shows
// the call with its age, its peer, its operation and what its task waits for; the slowest that ended are kept; one that lasts too long
// has a line in the log and counts in verbena_slow_requests_total.
//
//     class my_call final : public listed_request {
//         void report(request_report& into) const noexcept override;
//     };
//     shard.requests().begin(call);            // it came
//     call.set_task(record);                   // served_by does that
//     call.served("ok");                       // its answer is known
//     call.leave();                            // or its destructor
//
// A call costs some twenty instructions: nothing is allocated, no clock is read and no lock is taken. docs/internals/requests.md.
#pragma once

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/log.hpp>
#include <verbena/core/metrics.hpp>
#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/reactor/timer.hpp>
#include <verbena/core/short_text.hpp>
#include <verbena/core/task/wait_record.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <concepts>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena {

class request_list;

/// What people are told of a request. What is longer is cut off.
struct request_report {
    std::uint64_t trace = 0;  ///< task_context::trace_id: trace_name shows it
    short_text<64> peer;      ///< "192.0.2.7:1021"
    short_text<24> protocol;  ///< "nfs": a label of the metrics, of which there are few
    short_text<8> version;    ///< "4.2"; empty: it has none
    short_text<8> transport;  ///< "tcp", "iwarp"
    short_text<64> operation; ///< "READ"
    short_text<192> object;   ///< the file or the device
    short_text<32> status;    ///< of one that has ended
    time_point since;         ///< when it came
};

/// What only whoever serves a request knows of it: its operation, its file.
class request_detail {
public:
    /// Writes that. On the request's shard, between polls, while the request is listed.
    virtual void describe(request_report& into) const noexcept = 0;

protected:
    ~request_detail() = default;
};

namespace detail {
// An entry, or a place between entries where a reader is.
struct request_place : list_hook {
    time_point since = time_point::max(); // of a reader's place
};
} // namespace detail

/// A request. Made, used and destroyed on its shard; leaves the list when it is destroyed.
class listed_request : private detail::request_place {
public:
    listed_request() = default;

    /// Writes what it knows. Between the polls of its shard, while the request is listed; from served() too.
    virtual void report(request_report& into) const noexcept = 0;

    /// Whether it is among those that are served now.
    bool is_listed() const noexcept { return is_linked(); }
    /// When it was listed.
    time_point since() const noexcept { return detail::request_place::since; }
    /// Whose waits are the request's; lives until leave(). nullptr: nobody's.
    void set_runner(const detail::wait_record* runner) noexcept { runner_ = runner; }
    const detail::wait_record* runner() const noexcept { return runner_; }
    /// Lives until another one is set, or until leave().
    void set_detail(const request_detail* detail) noexcept { detail_ = detail; }
    const request_detail* detail() const noexcept { return detail_; }

    /// Its peer waits for something on purpose, as by a long poll: it is listed, but however long it takes, it is not slow.
    void may_take_long() noexcept { may_take_long_ = true; }

    /// Its answer is known, which `status` names. If it was one of the slowest, what report() says now is kept. Only the first call
    /// that keeps it counts, so whoever knows most says it first.
    inline void served(std::string_view status) noexcept;
    /// The same, of a status whose name costs something: `status()` is called where it is kept.
    template<std::invocable Status>
    void served(Status&& status) noexcept
    {
        if (may_be_kept()) [[unlikely]]
            keep(status());
    }
    /// It is over. Idempotent.
    void leave() noexcept { unlink(); }

protected:
    ~listed_request() = default;

private:
    friend class request_list;
    template<class T>
    friend class intrusive_list;
    inline bool may_be_kept() const noexcept;
    void keep(std::string_view status) noexcept;

    request_list* list_ = nullptr;
    const detail::wait_record* runner_ = nullptr;
    const request_detail* detail_ = nullptr;
    bool kept_ = false;
    bool may_take_long_ = false;
};

/// The requests of one shard, in the order in which they came: reactor::requests(). Used on the shard, but for what says otherwise.
class request_list final : private timer {
public:
    /// So many of the slowest are kept, of this period and of the one before it.
    static constexpr std::size_t kept = 32;
    static constexpr duration period = std::chrono::minutes(5);
    /// What was faster than that is not kept.
    static constexpr duration least_kept = std::chrono::milliseconds(1);
    /// Entries that the look at the oldest ones passes at once.
    static constexpr std::size_t at_once = 100;
    /// Protocols that have a count of their own.
    static constexpr std::size_t max_protocols = 8;

    /// `shard` outlives it.
    explicit request_list(reactor& shard);
    ~request_list();
    request_list(const request_list&) = delete;

    /// `r` came in this turn. It is served by nobody yet.
    void begin(listed_request& r) noexcept
    {
        r.list_ = this;
        r.runner_ = nullptr;
        r.detail_ = nullptr;
        r.kept_ = r.may_take_long_ = false;
        static_cast<detail::request_place&>(r).since = shard_.now();
        all_.push_back(r);
        if (watch_is_due_)
            begin_watch();
    }

    /// From now on a request that is older than `age` is told of once, and counted. Zero: none is, as at the start.
    void set_slow(duration age) noexcept;
    duration slow() const noexcept { return slow_; }
    /// The protocol has a count from now on, which is 0. A request_report names it so.
    void expect(std::string_view protocol) noexcept;
    /// Calls `show(protocol, count)` for each that is expected or was slow. Any thread.
    template<class Show>
    void for_each_slow(Show&& show) const
    {
        for (const slow_count& one : slow_counts_) {
            if (one.is_set.load(std::memory_order_acquire))
                show(one.protocol.view(), one.requests);
        }
    }

    /// One that has ended.
    struct ended {
        request_report what;
        duration took{};
        time_point when; ///< it ended
    };
    /// Those of the slowest that ended within the last two periods at most, in no order.
    std::vector<ended> slowest() const;

    /// Goes through those that are listed now, the oldest first. Requests come and go between two calls: it shows each that is there
    /// all the time, once, and none that comes meanwhile. May outlive the list, and is at its end then.
    class reader {
    public:
        /// Begins at the oldest request; what comes from now on is not shown.
        explicit reader(request_list& list) noexcept : list_(list), until_(list.shard_.now())
        {
            list.all_.push_front(here_);
        }
        reader(const reader&) = delete;
        /// nullptr at the end. To be used before anything else happens on the shard.
        const listed_request* next() noexcept
        {
            return here_.is_linked() ? list_.next(here_, until_) : nullptr;
        }

    private:
        request_list& list_;
        const time_point until_;
        detail::request_place here_;
    };

    /// What the task of `r` waits for, as a dump of tasks has it; empty: it runs, or awaits something that does not say so.
    std::string waits_for(const listed_request& r) const;

private:
    friend class listed_request;
    struct slow_count {
        std::atomic<bool> is_set{false};
        short_text<24> protocol;
        counter requests;
    };
    struct kept_of_period {
        std::array<ended, kept> all;
        std::size_t count = 0;
    };

    void begin_watch() noexcept;
    void on_timer() noexcept override;
    void tell(const listed_request& r) noexcept;
    counter& count_of(std::string_view protocol) noexcept;
    /// The entry behind `place`, which moves behind it; nullptr if that came after `until`, or there is none.
    const listed_request* next(detail::request_place& place, time_point until) noexcept;
    const listed_request* behind(detail::request_place& place) noexcept;
    void look_whether_kept(listed_request& r, std::string_view status) noexcept;

    reactor& shard_;
    intrusive_list<detail::request_place> all_;
    bool watch_is_due_ = false;   // as soon as there is a request
    duration least_ = least_kept; // that would be kept
    time_point period_ends_;      // of now_kept_
    duration slow_{};             // zero: none is
    detail::request_place told_;  // all before it were told of, if they are slow
    std::unique_ptr<kept_of_period> now_kept_;
    std::unique_ptr<kept_of_period> kept_before_;
    std::array<slow_count, max_protocols> slow_counts_;
    log_limiter slow_logged_;
};

bool listed_request::may_be_kept() const noexcept
{
    if (!is_linked())
        return false;
    const time_point now = list_->shard_.now();
    return now - since() >= list_->least_ || now >= list_->period_ends_;
}

void listed_request::served(std::string_view status) noexcept
{
    if (may_be_kept()) [[unlikely]]
        keep(status);
}

/// Says who serves a request, in the frame of the task that does. The request leaves the list when the task ends, however it ends.
///
///     served_by here(call);
///     co_await here;
///
/// Completes when: at once, without suspending. On cancel: no matter. Errors: none. Lifetime: the request outlives it. Shard: the
/// request's.
class [[nodiscard("co_await it: the request is served by nobody otherwise")]] served_by {
public:
    /// `r` is listed, and outlives this.
    explicit served_by(listed_request& r) noexcept : request_(r) {}
    served_by(const served_by&) = delete;
    ~served_by()
    {
        // Its object may be another request's by now.
        if (runner_ != nullptr && request_.runner() == runner_)
            request_.leave();
    }
    bool await_ready() const noexcept { return false; }
    template<class Promise>
    bool await_suspend(std::coroutine_handle<Promise> h) noexcept
    {
        runner_ = detail::record_of(h);
        request_.set_runner(runner_);
        return false;
    }
    void await_resume() const noexcept {}

private:
    listed_request& request_;
    const detail::wait_record* runner_ = nullptr;
};

} // namespace verbena

#pragma GCC visibility pop
