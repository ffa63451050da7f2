// SPDX-License-Identifier: Apache-2.0
// A directory read page by page to its end, by a client of any version.
#pragma once

#include <verbena/core/result.hpp>
#include <verbena/core/task/task.hpp>

#include <cstddef>
#include <cstdint>
#include <system_error>
#include <unordered_set>
#include <utility>
#include <vector>

namespace verbena::nfs {

/// Its entries. Servers of version 3 name "." and "..", which `without_dots` leaves out. A server of version 4 that does so
/// breaks a rule, and whoever uses the names sees it. `Page` is the client's directory_page. Completes when: the last page is here. On cancel: as readdir(). Errors: those of readdir(); EOVERFLOW:
/// more than `most` bytes of entries; EPROTO: the server goes round for ever. Lifetime: `c` and `directory` outlive the task. Shard:
/// the client's.
template<class Page, class Client, class Handle>
auto whole_directory(Client& c, const Handle& directory, bool plus, std::size_t most, bool without_dots)
    -> task<result<decltype(Page::entries)>>
{
    decltype(Page::entries) all;
    std::unordered_set<std::uint64_t>
        cookies; // of the ends of pages: one seen again means going round for ever
    std::size_t held = 0;
    Page page;
    while (!page.eof) {
        auto next = co_await c.readdir(directory, page, plus);
        if (!next)
            co_return next.error();
        page = std::move(*next);
        if (!page.eof && !cookies.insert(page.cookie).second)
            co_return error(std::errc::protocol_error, "the server repeats a directory cookie", page.cookie);
        for (auto& entry : page.entries) {
            held += sizeof entry + entry.name.size();
            if (held > most)
                co_return error(std::errc::value_too_large,
                                "a directory of more entries than fit; read it page by page", all.size());
            if (!without_dots || (entry.name != "." && entry.name != ".."))
                all.push_back(std::move(entry));
        }
    }
    co_return std::move(all);
}

} // namespace verbena::nfs
