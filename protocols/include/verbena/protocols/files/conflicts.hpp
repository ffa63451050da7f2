// SPDX-License-Identifier: Apache-2.0
// Who gives way to what: one table for delegations and layouts (RFC 8881 10.4.4, 18.16.4, 12.5.5).
#pragma once

#include <verbena/protocols/files/types.hpp>

#include <array>
#include <cstdint>

#pragma GCC visibility push(default)

namespace verbena::files {

/// What somebody wants to do with a file.
enum class operation : std::uint8_t {
    open_read,
    open_write,
    open_deny_read,
    open_deny_write,
    read,
    write,
    get_attributes,
    set_attributes, ///< mode, owner, times, ACL, extended attributes
    set_size,
    change_extents, ///< where bytes lie, as ALLOCATE, DEALLOCATE, CLONE and COPY do; it writes them, too
    remove,         ///< also what a rename overwrites
    rename,
    link,
    lock_read,
    lock_write,
};
constexpr unsigned operation_count = 15;

/// What a client holds that others may have to wait for.
enum class holding : std::uint8_t { read_delegation, write_delegation, read_layout, write_layout };
constexpr unsigned holding_count = 4;

/// Whether another client's `h` has to go before `op`.
bool conflicts(holding h, operation op) noexcept;

constexpr holding holding_of(delegation_type t) noexcept
{
    return t == delegation_type::read ? holding::read_delegation : holding::write_delegation;
}
/// Whether `op` reads data, writes them, or does neither: what a deny bit forbids to those without an open.
constexpr share access_of(operation op) noexcept
{
    switch (op) {
    case operation::read: return share::read;
    case operation::write:
    case operation::set_size:
    case operation::change_extents: return share::write;
    default: return share::none;
    }
}

} // namespace verbena::files

#pragma GCC visibility pop
