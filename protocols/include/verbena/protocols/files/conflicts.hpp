// SPDX-License-Identifier: Apache-2.0
// What delegations give way to (RFC 8881 10.4.4, 18.16.4). Other kinds of recallable state say so themselves (recallable.hpp).
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
/// How many values operation has.
constexpr unsigned operation_count = 15;

/// Whether another client's delegation has to go before `op`.
bool conflicts(delegation_type held, operation op) noexcept;

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
