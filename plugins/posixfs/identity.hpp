// SPDX-License-Identifier: Apache-2.0
// Whose rights the calling thread has towards the file system.
//
// The kernel keeps fsuid, fsgid, groups and capabilities per thread; glibc's wrappers would change all
// threads, so the raw calls are used. A switch costs microseconds: it happens only when the thread has
// another identity than wanted, and a shard gives its identity back once, at the end of the turn.
#pragma once

#include <verbena/core/result.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <string>

namespace verbena {
class reactor;
}

namespace verbena::posixfs {

/// What the process may do for its callers, found out once.
class capabilities {
public:
    static const capabilities& get() noexcept;

    bool switch_user = false;   ///< CAP_SETUID and CAP_SETGID: requests run as their callers
    bool open_handles = false;  ///< CAP_DAC_READ_SEARCH: open_by_handle_at works
    bool override_mode = false; ///< CAP_DAC_OVERRIDE: an owner may write his read-only file
    bool change_owners =
        false;          ///< CAP_CHOWN and CAP_FOWNER: it may what only owners may, and give files away
    bool lease = false; ///< CAP_LEASE: leases of everybody's files
    bool lends = false; ///< no switch_user, and more rights than a plain user's to give away
    /// The names of those that are missing, "CAP_SETUID CAP_..."; empty if none is.
    std::string missing() const;
    /// The effective ones of a thread that acts for `uid`, as the kernel's bits.
    std::uint64_t of_caller(std::uint32_t uid) const noexcept;

private:
    friend class thread_identity;
    capabilities() noexcept;
    std::uint64_t permitted_ = 0;
    std::uint64_t effective_ = 0;
    std::uint32_t uid_ = 0;
    std::uint32_t gid_ = 0;
    // The kernel drops the file capabilities by itself only when fsuid leaves 0.
    bool explicit_ = false;
};

/// Gives the calling thread the rights of `who`, no more and no less, until act_as_daemon(). EPERM for ids that
/// the kernel refuses, such as 2^32-1. Does nothing where the process can't switch, or where has_rights_of(who). `shard`: the reactor of
/// the calling thread, at the end of whose turn the daemon's rights come back; nullptr on a pool thread.
result<void> act_as(const storage::credential& who, reactor* shard = nullptr) noexcept;
/// Gives the calling thread the daemon's own uid and capabilities back. Its fsgid and groups stay the last
/// caller's: beside CAP_DAC_OVERRIDE they add nothing, and the next caller is often the same. A daemon without it
/// may reach by them what its own user may not.
void act_as_daemon() noexcept;
/// access(2) with the thread's identity, on an O_PATH descriptor as well; errno if not.
bool may(int fd, int wanted) noexcept;

/// True if the calling thread has the very rights that act_as(who) would give it, and has never had others: file
/// system ids, groups and capabilities are the same, so that act_as(who) leaves its credentials alone. The process
/// must not change its own ones after the first call.
bool has_rights_of(const storage::credential& who) noexcept;

/// act_as() for a piece of a pool job.
class acting_as {
public:
    explicit acting_as(const storage::credential& who) noexcept : status_(act_as(who)) {}
    acting_as(const acting_as&) = delete;
    ~acting_as() { act_as_daemon(); }
    explicit operator bool() const noexcept { return status_.has_value(); }
    const class error& error() const noexcept { return status_.error(); }

private:
    result<void> status_;
};

} // namespace verbena::posixfs
