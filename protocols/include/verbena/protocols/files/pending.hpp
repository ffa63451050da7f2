// SPDX-License-Identifier: Apache-2.0
// Opens and locks that are begun: they hold their place until they are committed, or go.
#pragma once

#include <verbena/core/intrusive_list.hpp>
#include <verbena/protocols/files/requests.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace verbena::files::detail {
struct client_entry;
struct file_entry;
} // namespace verbena::files::detail

#pragma GCC visibility push(default)

namespace verbena::files {

class state_table;

/// An open that is decided and not yet answered: its share bits count. Owned by who opens; the table outlives it. Shard-local.
class pending_open : list_hook {
public:
    pending_open() noexcept = default;
    pending_open(const pending_open&) = delete;
    /// Not committed: it never was.
    ~pending_open();
    /// As open_request::change has it, where that is known later.
    void set_change(std::optional<std::uint64_t> change) noexcept { request_.change = change; }
    /// A lease for the delegation that was reserved.
    void set_lease(std::unique_ptr<storage::file_lease> lease) noexcept { lease_ = std::move(lease); }
    /// With reclaim: what it had is recalled at once.
    void set_gives_back() noexcept { request_.gives_back = true; }
    /// There is none, and the next question is why.
    void set_lease(storage::no_lease why) noexcept { why_no_lease_ = why; }
    /// Whether all that its client had was taken meanwhile: it keeps nobody out any more and can't be committed. Any
    /// thread.
    bool is_dropped() const noexcept { return dropped_.load(std::memory_order_acquire); }

private:
    friend class state_table;
    friend class intrusive_list<pending_open>;
    // To cut the file is to write it, whatever it is opened for, until the open is answered.
    share cut() const noexcept { return request_.truncates ? share::write : share::none; }
    struct of_client : list_hook {
        explicit of_client(pending_open& p) noexcept : open(p) {}
        pending_open& open;
    };
    friend struct detail::client_entry;
    of_client of_client_{*this}; // unlinked: it is not begun, or dropped
    std::atomic<bool> dropped_ = false;
    state_table* table_ = nullptr;
    detail::file_entry* file_ = nullptr;
    open_request request_;
    std::optional<stateid> reserved_; // until it is committed
    std::unique_ptr<storage::file_lease> lease_;
    storage::no_lease why_no_lease_ = storage::no_lease::failed;
};

/// A lock that the table would grant, for as long as the back end is asked for it (storage::local_locks): locks of
/// other owners that contradict it are denied meanwhile. Owned by who locks; the table outlives it. Shard-local.
class pending_lock : list_hook {
public:
    pending_lock() = default;
    pending_lock(const pending_lock&) = delete;
    /// Not granted: it never was. The back end lets go of it.
    ~pending_lock();
    /// Whether state_table::lock(), or lock_by_owner(), has begun it: then lock_locally() is awaited, and the same
    /// function asked again.
    bool asks_back_end() const noexcept { return table_ != nullptr && !is_held_; }
    /// Behind a lock that was granted and made of a write lock one to read: who answers the client awaits its
    /// settle(), so that local processes may read by then.
    back_end_locks take_unsettled() noexcept { return std::move(unsettled_); }

private:
    friend class state_table;
    friend class intrusive_list<pending_lock>;
    state_table* table_ = nullptr;
    detail::file_entry* file_ = nullptr; // pinned
    client_id client_ = nobody;
    std::uint32_t via_ = 0;
    bool has_open_ = true;
    stateid id_; // without which it is not granted, if it has an open
    std::string owner_;
    byte_range bytes_;
    lock_type type_ = lock_type::read;
    bool waits_ = false;         // if a local process has it locked
    bool is_held_ = false;       // by the back end
    bool took_nothing_ = false;  // the back end has refused it
    std::uint64_t asked_at_ = 0; // of file_entry::local_calls
    back_end_locks unsettled_;
};

} // namespace verbena::files

#pragma GCC visibility pop
