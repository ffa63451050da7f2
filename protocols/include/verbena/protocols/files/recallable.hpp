// SPDX-License-Identifier: Apache-2.0
// Recallable state: what a client has until it gives it back, is asked to, or loses it. docs/internals/files_recallable.md.
#pragma once

#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/files/byte_ranges.hpp>
#include <verbena/protocols/files/conflicts.hpp>
#include <verbena/protocols/files/exported_file.hpp>
#include <verbena/protocols/files/stateid.hpp>
#include <verbena/protocols/files/types.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::files {

/// Recallable state that its client is to return.
struct recall_notice {
    client_id client = nobody;                    ///< who has it
    stateid id;                                   ///< by which it is returned
    const storage::handle* file = nullptr;        ///< good during the call
    delegation_type type = delegation_type::read; ///< of a delegation
    std::uint32_t via = 0; ///< the export by which the client got it, and knows the file
};

/// Why a client does not have it any more.
enum class loss : std::uint8_t {
    returned,     ///< it gave it back, or closed the file where that ends it
    forgotten,    ///< it was asked for it, and answered that it does not have it
    revoked,      ///< it did not return it in time, or state_table::revoke() was called
    lapsed,       ///< likewise, and its lease was over: recallable_kind::ends_with_lease()
    client_ended, ///< all that the client had was taken, or it left
    server_ends,  ///< the table's shard stops
};

/// What a client does not have any more.
struct lost_state {
    client_id client = nobody;             ///< who had it
    stateid id;                            ///< by which the client knows it
    const storage::handle* file = nullptr; ///< good during the call
    std::array<byte_ranges, 2> bytes;      ///< those that it had to read, and those to write as well
    loss why = loss::returned;             ///< how it came to that
    bool is_all = true;                    ///< false: the client keeps other bytes by the same stateid
    std::uint32_t via = 0;                 ///< the export by which the client had it
};

/// A kind of recallable state besides delegations, which the table knows by itself. A protocol brings it along; a
/// layout is one. A client has one state of a kind for a file, and with it ranges of bytes, each to read or to write
/// as well. Outlives the table, on whose shard it is used. Its plain functions are called in the middle of a
/// decision: they answer, or note what they are told, and do not call the table.
class recallable_kind {
public:
    /// A word, as "layout". A literal.
    virtual std::string_view name() const noexcept = 0; ///< for the log
    /// Whether such a range to read, or to write, has to go before another client's `op`, and is not given while
    /// another client has the file open or locked so. No range is given while the file is being changed, by whomever.
    /// READs that are under way are not looked for: if they must not run beside a range, as beside one to write,
    /// whoever gives it awaits operations_under_way::ended() with share::read before state_table::hold().
    virtual bool conflicts(lock_type type, operation op) const noexcept = 0;
    /// The same of an `op` of the client that has the range.
    virtual bool conflicts_with_holder(lock_type, operation) const noexcept { return false; }
    /// Whether such a range has to go before another client gets bytes of it of the kind `of`, to read or to write as
    /// `wanted` says.
    virtual bool excludes(lock_type, const recallable_kind& of, lock_type wanted) const noexcept
    {
        (void)of, (void)wanted;
        return false;
    }
    /// What conflicts() says besides, of a state by which its client was told that bytes of the file are a hole
    /// (state_table::note_told()). Who wants a range to write is one that writes these bytes.
    virtual bool hole_conflicts(operation) const noexcept { return false; }
    /// What conflicts() and conflicts_with_holder() say besides, of a state by which its client has bytes that are not the file's yet
    /// (state_table::note_told()). Of any client's such state its bytes go, too, before another client gets bytes of the kind.
    virtual bool unshared_conflicts(operation) const noexcept { return false; }
    /// Its client is to return it: to be sent later.
    virtual void recall(const recall_notice& n) noexcept = 0;
    /// Its client is asked to give back what it can spare, so that `keep` states of the kind are left to it: once a lease at most. To be sent
    /// later.
    virtual void recall_any(client_id client, std::size_t keep) noexcept { (void)client, (void)keep; }
    /// How long the client has for that, always the same. Nothing: state_options::recall_time.
    virtual std::optional<duration> recall_time() const noexcept { return std::nullopt; }
    /// Ends what the client may still do with what it lost by other ways than calls, such as access to memory. Until
    /// this has ended nobody gets what that was in the way of. It runs as soon as it is clear that the client has to
    /// lose it, which may be before that is written down and the stateid goes.
    /// Completes when: nothing more can come of it. On cancel: its time is over (state_options::fence_time), or the
    /// server stops: it ends by force what it waits for, as by closing connections, and completes. Errors: any, also
    /// exceptions, where it does not know: it is called again after a second.
    /// Lifetime: `what` is kept by the caller. Shard: the table's.
    virtual task<result<void>> fence(const lost_state& what) = 0;
    /// The client has nothing of this kind any more, and all that it had is fenced.
    virtual void left(client_id) noexcept {}
    /// How far behind the newest number a stateid may be by which its client asks for more, or returns some: calls
    /// that run side by side bear one number (RFC 8881 12.5.3).
    virtual std::uint32_t most_behind() const noexcept { return 0; }
    /// Whether stateids of the kind need a number: 0 does not stand for the newest, and a recall draws the next one (RFC 8881 12.5.3).
    virtual bool is_numbered() const noexcept { return false; }
    /// Whether a client is asked for what it has as soon as its lease is over, and loses it when the time for that is over, also
    /// where nobody else wants it: what takes up memory is not kept for a client that may never come back. Nobody blames the client for
    /// that: the stateid is no more, nothing is kept as revoked, and the client's record stays.
    virtual bool ends_with_lease() const noexcept { return false; }
    /// Whether there is room for more by the stateid of the kind that a client has. Else hold() is busy.
    virtual bool has_room(const stateid&) const noexcept { return true; }

    // Limits. What is fenced counts until that is over.
    /// The most that there may be. It may be asked for at any time, and change.
    virtual std::size_t most() const noexcept = 0; ///< pairs of a client and a file that have one
    /// Likewise, of one client, at all tables, with what it has of other kinds.
    virtual std::size_t most_of_client() const noexcept = 0;
    virtual std::size_t most_of_file() const noexcept { return most(); } ///< likewise, of one file
    virtual std::size_t most_ranges() const noexcept = 0;                ///< of one file that a client has

protected:
    ~recallable_kind() = default;

private:
    friend class state_table;
    std::atomic<std::size_t> held_{0}, fences_{0}; // at all tables
};

/// What a client has of a kind.
struct held_state {
    client_id client = nobody; ///< who has it
    stateid id;                ///< by which the client knows it
    storage::handle file;      ///< of which file
    std::uint32_t via = 0;     ///< the export by which the client got it
};

/// What state_table::hold() is asked for.
struct hold_request {
    client_id client = nobody;       ///< who is to have it
    exported_file file;              ///< of which file
    recallable_kind* kind = nullptr; ///< of which kind
    /// An open, a lock or a delegation of the file; or the state of this kind that the client has.
    stateid by;
    byte_range bytes;                 ///< the range
    lock_type type = lock_type::read; ///< to read, or to write
    /// The client may learn that some of the bytes are a hole, or get bytes that are not the file's. Until state_table::note_told() says
    /// whether, who fills one waits, the client itself too.
    bool looks = false;
};

} // namespace verbena::files

#pragma GCC visibility pop
