// SPDX-License-Identifier: Apache-2.0
// What serves calls: programs, and the dispatcher that a transport hands its calls to.
#pragma once

#include <verbena/core/metrics.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/rpc/call.hpp>

#include <cstdint>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::rpc {

/// What the dispatcher puts into the reply when a procedure returns.
enum class outcome : std::uint8_t {
    success,       ///< results() holds the results
    proc_unavail,  ///< no such procedure
    garbage_args,  ///< the arguments can't be decoded
    system_error,  ///< SYSTEM_ERR
    auth_too_weak, ///< AUTH_ERROR, AUTH_TOOWEAK
    drop,          ///< no reply; the peer will repeat the call
};

/// What becomes of a call that comes again.
enum class repeat_rule : std::uint8_t {
    runs_again, ///< it runs
    runs_in_turn, ///< it runs when the first run has ended: one that ran on could undo what came after the repeat
    is_answered, ///< with what the first run was answered, from the duplicate-request cache
};

/// A program at a range of versions. Registered in a dispatcher, which it outlives; used by the
/// shard that owns the dispatcher only.
class program {
public:
    virtual ~program() = default;
    /// The program's number, which callers ask for (RFC 5531 8.3).
    virtual std::uint32_t number() const noexcept = 0;
    /// The lowest version that is served.
    virtual std::uint32_t low_version() const noexcept = 0;
    /// The highest version; all between are served, or answered PROC_UNAVAIL.
    virtual std::uint32_t high_version() const noexcept = 0;
    /// "nfs", "mount": bounded label of the metrics.
    virtual std::string_view name() const noexcept = 0;
    /// Names of the procedures of `version`, for metrics; empty for an unknown number.
    virtual std::string_view procedure_name(std::uint32_t version,
                                            std::uint32_t procedure) const noexcept = 0;
    /// True if a repeat must be answered from the duplicate-request cache rather than run again.
    virtual bool non_idempotent(std::uint32_t version, std::uint32_t procedure) const noexcept = 0;
    /// True if a repeat may run again, but only when the first run has ended: one that ran on could undo what came after the
    /// repeat. Of procedures for which non_idempotent() is false.
    virtual bool repeats_in_turn(std::uint32_t version, std::uint32_t procedure) const noexcept
    {
        (void)version, (void)procedure;
        return false;
    }
    /// What becomes of repeats of a call like `c`, for programs where its arguments decide; args() stay where they are. Else the two above
    /// decide.
    virtual repeat_rule repeats(call& c) const noexcept
    {
        const call_header& header = c.header();
        if (non_idempotent(header.version, header.procedure))
            return repeat_rule::is_answered;
        return repeats_in_turn(header.version, header.procedure) ? repeat_rule::runs_in_turn
                                                                 : repeat_rule::runs_again;
    }
    /// True if a call like `c` goes on to its end though its caller is gone, since it changes something: half of a
    /// change is neither what the caller wanted nor what a repeat could be answered with. Its task then sees no stop
    /// but the server's own. False: it is asked to stop. args() stay where they are. By itself: a call whose
    /// repeats() are not simply run again.
    virtual bool goes_on_alone(call& c) const noexcept { return repeats(c) != repeat_rule::runs_again; }
    /// Whether anything is served to anybody at the peer's address. Where no program of a listener admits it, a connection by RDMA is
    /// rejected before anything is made for it, and a byte stream is one of a few (stream_options::max_strangers).
    virtual bool admits(const peer& from)
    {
        (void)from;
        return true;
    }
    /// True if it may call its callers back (call::reverse()): over RDMA that takes receives of each connection.
    virtual bool calls_back() const noexcept { return false; }
    /// Registers the program's own metrics, which end before it does. Any thread.
    virtual metric_registrations expose(metric_registry& registry) const
    {
        (void)registry;
        return {};
    }
    /// Serves one call. Completes when: results() hold what the outcome says. On cancel: the transport asks it to stop when
    /// nobody waits for the reply any more: the server ends, or the caller's connection does. The end of a TCP
    /// connection's input counts as that, though what is answered all the same is still sent there. A call that changes
    /// something is not asked when its caller goes (goes_on_alone()). It may run to its end all the same, which is
    /// waited for. What waits for something to give its caller does so in call::while_awaited(), and gives nothing away
    /// afterwards. Errors: an exception counts as outcome::system_error, and is logged. Lifetime: `c` and the program
    /// outlive the task. Shard: that of the dispatcher.
    virtual task<outcome> serve(call& c) = 0;
};

/// What a transport hands its calls to: routes by program, version and procedure; answers every
/// reject and accept status itself; consults the duplicate-request cache; counts.
class dispatcher {
public:
    virtual ~dispatcher() = default;
    /// Serves `c`; false if no reply must be sent. Completes when: its reply body stands in c.results() (the whole reply message,
    /// from the XID on). On cancel: as program::serve(), and a wait for the first run of the same call is not ended. Errors: an
    /// exception ends the connection. Lifetime: `c` and the dispatcher outlive the task. Shard: that of the dispatcher.
    virtual task<bool> dispatch(call& c) = 0;
    /// Whether any program admits the peer. Shard: that of the dispatcher.
    virtual bool admits(const peer& from)
    {
        (void)from;
        return true;
    }
};

} // namespace verbena::rpc

#pragma GCC visibility pop
