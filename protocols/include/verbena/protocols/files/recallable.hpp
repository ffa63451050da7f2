// SPDX-License-Identifier: Apache-2.0
// Recallable state: what a client has until it gives it back, is asked to, or loses it. docs/internals/files.md.
#pragma once

#include <verbena/core/result.hpp>
#include <verbena/core/task.hpp>
#include <verbena/protocols/files/conflicts.hpp>
#include <verbena/protocols/files/stateid.hpp>
#include <verbena/protocols/files/types.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <cstddef>
#include <optional>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::files {

/// Recallable state that its client is to return.
struct recall_notice {
    client_id client = nobody;
    stateid id;
    const storage::handle* file = nullptr;
    delegation_type type = delegation_type::read; ///< of a delegation
};

/// A kind of recallable state besides delegations, which the table knows by itself. A protocol brings it along; a
/// layout is one. A client has one state of a kind for a file, and with it ranges of bytes, each to read or to write
/// as well. Outlives the table, on whose shard it is used.
class recallable_kind {
public:
    virtual std::string_view name() const noexcept = 0; ///< for the log
    /// Whether such a range to read, or to write, has to go before another client's `op`.
    virtual bool conflicts(lock_type type, operation op) const noexcept = 0;
    /// Its client is to return it. Called in the middle of a decision: it notes what it is told and sends it later,
    /// and does not call the table.
    virtual void recall(const recall_notice& n) noexcept = 0;
    /// The client has it no more, as it gave it back, or it was taken away. Ends what the client may still do with it
    /// by other ways than calls, such as access to memory. Until this has ended nobody gets what it was in the way
    /// of.
    /// Completes when: nothing more can come of it. On cancel: its time is over (state_options::fence_time): it ends
    /// by force what it waits for, as by closing connections, and completes. Errors: any, where it does not know: it
    /// is called again after a second.
    /// Lifetime: `file` is kept by the caller. Shard: the table's.
    virtual task<result<void>> fence(client_id client, stateid id, const storage::handle& file) = 0;
    virtual std::size_t most() const noexcept = 0;           ///< pairs of a client and a file that have one
    virtual std::size_t most_of_client() const noexcept = 0; ///< likewise, of one client
    virtual std::size_t most_ranges() const noexcept = 0;    ///< of one file that a client has

protected:
    ~recallable_kind() = default;

private:
    friend class state_table;
    std::size_t held_ = 0;
};

struct hold_request {
    client_id client = nobody;
    storage::handle file;
    recallable_kind* kind = nullptr;
    stateid
        by; ///< an open, a lock or a delegation of the file; or the state of this kind that the client has
    byte_range bytes;
    lock_type type = lock_type::read;
};

} // namespace verbena::files

#pragma GCC visibility pop
