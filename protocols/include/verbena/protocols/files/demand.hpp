// SPDX-License-Identifier: Apache-2.0
// What somebody wants to do to a file: what is in the way of that can be asked, and made to go.
#pragma once

#include <verbena/protocols/files/conflicts.hpp>
#include <verbena/protocols/files/recallable.hpp>
#include <verbena/protocols/files/requests.hpp>

#include <cstdint>

#pragma GCC visibility push(default)

namespace verbena::files {

class state_table;

/// What somebody wants to do, as far as others may be in the way of it.
class demand {
public:
    /// `who` is the client that does it, or nobody.
    demand(operation op, const exported_file& file, client_id who = nobody) noexcept;
    explicit demand(const open_request& r) noexcept;
    explicit demand(const lock_request& r) noexcept;
    explicit demand(const owner_lock& r) noexcept;
    explicit demand(const hold_request& r) noexcept;
    /// Reading for somebody who may pass over deny bits (the READ bypass stateid).
    demand& past_denies() noexcept
    {
        access_ = share::none;
        return *this;
    }
    /// By who sees to it that nothing new is given meanwhile: files whose state is recalled for it get no rest behind that
    /// (state_options::rest_after_recall).
    demand& without_rest() noexcept
    {
        leaves_rest_ = false;
        return *this;
    }

private:
    friend class state_table;
    void add(operation op) noexcept { operations_ |= std::uint32_t(1) << unsigned(op); }
    enum class kind : std::uint8_t { operation, open, lock };
    exported_file file_;
    client_id who_;
    kind kind_;
    bool leaves_rest_ = true;
    std::uint32_t operations_ = 0;
    share access_ = share::none;
    share deny_ = share::none;
    bool minds_cuts_ = false; // by opens that are begun: what reclaims was there before them
    bool reclaims_ = false;
    byte_range bytes_;
    lock_type type_ = lock_type::read;
    const recallable_kind* holds_ = nullptr; // the kind of which it wants `bytes_`
};

} // namespace verbena::files

#pragma GCC visibility pop
