// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/files/conflicts.hpp>

namespace verbena::files {

bool conflicts(delegation_type held, operation op) noexcept
{
    // Of read delegations and of write delegations.
    static constexpr std::array<std::array<bool, 2>, operation_count> table{{
        {false, true}, // open_read
        {true, true},  // open_write
        {true, true},  // open_deny_read
        {false, true}, // open_deny_write
        {false, true}, // read
        {true, true},  // write
        {false, true}, // get_attributes: the holder may have a newer size and change
        {true, true},  // set_attributes
        {true, true},  // set_size
        {true, true},  // change_extents
        {true, true},  // remove
        {true, true},  // rename
        {true, true},  // link
        {false, true}, // lock_read: a holder keeps locks to itself
        {true, true},  // lock_write
    }};
    return table[std::size_t(op)][held == delegation_type::read ? 0 : 1];
}

} // namespace verbena::files
