// SPDX-License-Identifier: Apache-2.0
// How long calls that a server puts off are asked again (NFS3ERR_JUKEBOX, NFS4ERR_DELAY, NFS4ERR_GRACE).
#pragma once

#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/result.hpp>

#include <algorithm>
#include <chrono>

#pragma GCC visibility push(default)

namespace verbena::nfs {

/// Hears that a server puts calls off, to tell a person. Called on the shard; must not close the client.
class put_off_watch {
public:
    virtual ~put_off_watch() = default;
    /// A call has waited for patience::told_after, or half the patience: once, until on_service(). `cause` names the procedure.
    virtual void on_put_off(const error& cause) noexcept = 0;
    /// The first call after that which was not put off.
    virtual void on_service() noexcept = 0;
};

/// What the calls of one client share. Once a call has waited in vain, others are not asked again until the server does what it is
/// asked. Shard-local.
class patience {
public:
    static constexpr duration usual = std::chrono::seconds(60);     ///< have() may say otherwise
    static constexpr duration told_after = std::chrono::seconds(5); ///< a put_off_watch hears of it then
    /// before the call is made again; doubled each time
    static constexpr duration first_delay = std::chrono::milliseconds(100);
    static constexpr duration max_delay = std::chrono::seconds(5); ///< the longest of these

    /// How long a call is asked again, and who hears of it (nullptr: nobody; outlives this).
    void have(duration limit, put_off_watch* watch) noexcept
    {
        limit_ = limit;
        told_at_ = std::min(told_after, limit / 2);
        watch_ = watch;
    }
    /// From now on each wait in vain halves the patience, so that calls one after the other wait in vain for at most twice what it
    /// was, however often the server serves others between them.
    void spend() noexcept { spends_ = true; }
    bool spends() const noexcept { return spends_; }
    duration limit() const noexcept { return limit_; }

    /// A call was put off that has waited for `waited` by now, of `limit` at most. True: it is asked again. `restarting`: until the end of
    /// the server's grace period. Neither kind of waiting ends the other one's calls.
    bool put_off(const error& cause, duration waited, duration limit, bool restarting = false) noexcept
    {
        bool& out = restarting ? out_of_restart_ : out_;
        // Of calls that wait at once, the first one to end ends the others.
        if (!out && waited >= limit) {
            out = true;
            if (spends_)
                limit_ /= 2;
        }
        if (watch_ != nullptr && !told_ && waited >= told_at_) {
            told_ = true;
            watch_->on_put_off(cause);
        }
        return !out;
    }
    /// A call was not put off.
    void served() noexcept
    {
        out_ = out_of_restart_ = false;
        if (told_) {
            told_ = false;
            watch_->on_service();
        }
    }

private:
    duration limit_ = usual;
    duration told_at_ =
        told_after; // a wait that is shorter is nobody's matter, however little patience is left
    put_off_watch* watch_ = nullptr;
    bool spends_ = false;
    bool told_ = false;           // the watch, of calls put off
    bool out_ = false;            // nothing was served since a call waited in vain
    bool out_of_restart_ = false; // likewise, for the end of a grace period
};

} // namespace verbena::nfs

#pragma GCC visibility pop
