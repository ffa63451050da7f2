// SPDX-License-Identifier: Apache-2.0
// What the C library's lookups say: that there is nobody, or that it could not find out.
#pragma once

#include <verbena/core/result.hpp>

#include <cerrno>
#include <cstddef>
#include <optional>
#include <system_error>
#include <vector>

#include <netdb.h>

namespace verbena::nfs::v4::detail {

inline constexpr std::size_t first_room = 4096;
// A group's members are all read with it.
inline constexpr std::size_t most_room = std::size_t(16) << 20;

/// Calls `ask(record, memory, size, &found)`, one of the get*_r functions, with as much memory as it wants, and yields `take(record)`.
template<class Value, class Record, class Ask, class Take>
result<std::optional<Value>> look_up(Ask ask, Take take)
{
    for (std::size_t room = first_room; room <= most_room; room *= 4) {
        std::vector<char> memory(room);
        Record record{};
        Record* found = nullptr;
        errno = 0;
        const int failure = ask(&record, memory.data(), memory.size(), &found);
        if (failure == ERANGE)
            continue;
        if (found != nullptr)
            return std::optional<Value>(take(*found));
        // ENOENT, ESRCH, EBADF and EPERM "or ..." say the same by getpwnam(3), but not by glibc or musl: there they are why a source could not
        // be asked, such as one whose daemon's socket is not there.
        if (failure == 0)
            return std::optional<Value>();
        return error(std::error_code(failure, std::generic_category()), "a lookup in nsswitch's sources");
    }
    return error(std::errc::result_out_of_range, "a lookup in nsswitch's sources");
}

/// Of what getaddrinfo() failed with: it could ask, and there is no such name.
inline bool is_unknown_to_resolver(int failure) noexcept
{
    bool is = failure == EAI_NONAME;
#ifdef EAI_NODATA
    is = is || failure == EAI_NODATA;
#endif
#ifdef EAI_ADDRFAMILY
    is = is || failure == EAI_ADDRFAMILY;
#endif
    return is;
}

} // namespace verbena::nfs::v4::detail
