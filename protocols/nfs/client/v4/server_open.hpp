// SPDX-License-Identifier: Apache-2.0
// An open as the server has it. One file uses it, or under a delegation any number of them, or none.
#pragma once

#include "open_arguments.hpp"

#include <verbena/core/task/event.hpp>
#include <verbena/core/task/semaphore.hpp>
#include <verbena/protocols/files/byte_ranges.hpp>
#include <verbena/protocols/nfs/client/v4/file.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace verbena::nfs::v4 {

inline const error locks_are_lost(std::errc::io_error, "the server has lost what was locked here");
inline const error not_opened_for_this(make_error_code(nfsstat4::openmode), "the file is not open for that");

/// What the server may have locked although nobody heard so.
struct lock_in_doubt {
    files::locked_range what;
    std::uint64_t incarnation = 0; ///< of the server, as client_session counts them: the next one has it not
};

/// What one file has locked. Its owner is its own.
struct file_locks {
    explicit file_locks(std::uint64_t number) noexcept : owner(number) {}

    const std::uint64_t owner;
    stateid4 id;           // with sequence id 0, if is_known
    bool is_known = false; // the server knows the owner
    bool is_lost = false;  // the server has forgotten what is in `ranges`
    files::byte_ranges ranges;
    /// What the server may have locked so although `ranges` says otherwise, as the answer to LOCK never came.
    std::optional<lock_in_doubt> in_doubt;
    semaphore turn{1};         // of LOCK and LOCKU, with what undoes them
    std::uint64_t notices = 0; // that a lock may be free
    event may_be_free;         // set by each of them, for who waits

    void notice() noexcept
    {
        ++notices;
        may_be_free.set();
    }
    /// The server does not know them.
    void lose() noexcept
    {
        is_known = false;
        is_lost = is_lost || !ranges.empty();
        in_doubt.reset();
    }
};

struct server_open {
    enum class state : std::uint8_t {
        plain,    ///< without a delegation
        held,     ///< opens are answered by it
        returning ///< it goes back: no open is answered by it any more
    };

    server_open(std::uint64_t number, std::uint32_t wanted) noexcept : access(wanted), owner(number) {}

    /// What its files need of it.
    std::uint32_t access_used() const noexcept
    {
        std::uint32_t all = 0;
        for (const file* each : users)
            all |= each->access_;
        return all;
    }
    /// The stateid for a file with `wanted`: the open's, which outlasts the delegation, where that is enough.
    stateid4 id_for(std::uint32_t wanted) const noexcept
    {
        return (wanted & ~access) == 0 || delegation.is_anonymous() ? id : delegation;
    }
    /// The server has begun this open anew: what was locked by the one before is not any more.
    void lose_locks() noexcept
    {
        for (const auto& each : locks)
            each->lose();
    }
    bool has_delegation() const noexcept { return delegated != state::plain; }

    known_handle handle;
    std::uint32_t access;      // that the server knows of
    const std::uint64_t owner; // its own, so that to close one closes no other
    bool in_doubt = false;     // whether the server has it open by another stateid, which nobody heard
    bool is_new = false; // its OPEN may have made the file, and had access then that the mode does not give
    bool is_closed = false;
    bool may_notify = false;                        // the server says when a lock is free that was waited for
    stateid4 id;                                    // with sequence id 0, which stands for the newest
    semaphore turn{1};                              // of OPEN with this owner
    std::vector<file*> users;                       // open ones
    std::vector<std::shared_ptr<file_locks>> locks; // of those that lock

    state delegated = state::plain;
    open_delegation_type4 type = open_delegation_type4::none;
    std::uint64_t typed_by = 0;        // the number of the OPEN that told `type`
    stateid4 delegation;               // likewise with 0
    std::uint32_t allowed = 0;         // access of an open that it answers
    std::uint32_t allowed_by_mode = 0; // likewise, by the file's mode when it was granted
    changeid4 granted_at = 0;          // change attribute of the file then
    std::uint64_t size = 0;            // of the file by now: since then nobody else changes it
    bool is_size_in_doubt = false;     // what a change came to is not known
    file_attributes known;             // of the file, as it was after `looked_at` changes
    std::uint64_t changes = 0;         // that this client has made since, or may have
    std::uint64_t looked_at = 0;
    std::uint64_t last_used = 0;
    std::size_t writes = 0; // under way
    std::uint64_t writes_begun = 0;
    std::uint64_t reaches = 0;  // so long the file is at least, when WRITEs under way are done
    std::size_t unmeasured = 0; // of the writes, those after which nobody knows the size before the answer
    event quiet;                // while there are none, for who waits there
    std::vector<std::pair<file*, std::uint64_t>>
        committing; // users, and what each had written when a COMMIT was sent
};

/// An OPEN that may bring a delegation is under way, until this goes.
class client::asking {
public:
    explicit asking(client& c) : client_(c), number_(c.begin_asking()) {}
    asking(const asking&) = delete;
    ~asking() { client_.end_asking(number_); }
    std::uint64_t number() const noexcept { return number_; }

private:
    client& client_;
    const std::uint64_t number_;
};

} // namespace verbena::nfs::v4
