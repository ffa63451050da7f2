// SPDX-License-Identifier: Apache-2.0
// How people see task_context::trace_id: "12.3fa0c11d", the number of a connection and the number that its peer gave the call.
// The lines of the log, the lists of the control plane and dumps of tasks name a call so.
#pragma once

#include <verbena/core/short_text.hpp>

#include <cstdint>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena {

/// The call `number` of a connection (connection_number()).
constexpr std::uint64_t trace_of(std::uint32_t connection, std::uint32_t number) noexcept
{
    return std::uint64_t(connection) << 32 | number;
}

/// An id without a connection is a plain number.
class trace_name {
public:
    /// Writes `id` into itself, without memory: "12.1a" is call 0x1a of connection 12.
    explicit trace_name(std::uint64_t id) noexcept
    {
        const auto number = static_cast<std::uint32_t>(id);
        const auto connection = static_cast<std::uint32_t>(id >> 32);
        if (connection == 0) {
            text_.append(number);
            return;
        }
        text_.append(connection).append(".");
        for (std::uint32_t place = 0xf0000000; place > 0xf && (number & place) == 0; place >>= 4)
            text_.append("0");
        text_.append(number, 16);
    }
    /// The text, which lives as long as this object.
    std::string_view view() const noexcept { return text_.view(); }
    operator std::string_view() const noexcept { return view(); }

private:
    short_text<24> text_;
};

} // namespace verbena

#pragma GCC visibility pop
