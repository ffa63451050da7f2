// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/net/connection_list.hpp>

#include <atomic>

namespace verbena {

std::uint32_t new_connection_number() noexcept
{
    static std::atomic<std::uint32_t> last{0};
    for (;;) {
        if (const std::uint32_t number = last.fetch_add(1, std::memory_order_relaxed) + 1; number != 0)
            return number; // 0 would be no connection
    }
}

} // namespace verbena
