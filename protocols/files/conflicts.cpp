// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/files/conflicts.hpp>

namespace verbena::files {

bool conflicts(holding h, operation op) noexcept
{
    // Columns as in `holding`: read delegation, write delegation, read layout, write layout.
    static constexpr std::array<std::array<bool, holding_count>, operation_count> table{{
        {false, true, false, false}, // open_read
        {true, true, false, false},  // open_write
        {true, true, false, false},  // open_deny_read
        {false, true, false, false}, // open_deny_write
        {false, true, false, true},  // read
        {true, true, true, true},    // write
        {false, true, false, false}, // get_attributes: the holder may have a newer size and change
        {true, true, false, false},  // set_attributes
        {true, true, true, true},    // set_size
        {true, true, true, true},    // change_extents
        {true, true, false, false},  // remove
        {true, true, false, false},  // rename
        {true, true, false, false},  // link
        {false, true, false, false}, // lock_read: a holder keeps locks to itself
        {true, true, false, false},  // lock_write
    }};
    return table[std::size_t(op)][std::size_t(h)];
}

} // namespace verbena::files
